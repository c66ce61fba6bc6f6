"""Names from `readers` that training code needs and `dali_pipelines` exports."""

from readers import AiaReader as AiaReader
from readers import AudioReader as AudioReader
from readers import Boxes as Boxes
from readers import ChannelsReader as ChannelsReader
from readers import ChunkedReader as ChunkedReader
from readers import CorrectionTable as CorrectionTable
from readers import FitsReader as FitsReader
from readers import Hdu as Hdu
from readers import HeaderRules as HeaderRules
from readers import Index as Index
from readers import JpegReader as JpegReader
from readers import Mask as Mask
from readers import NpyReader as NpyReader
from readers import PointingTable as PointingTable
from readers import ReadError as ReadError
from readers import ReadReport as ReadReport
from readers import Storage as Storage
from readers import TimeBlocks as TimeBlocks
from readers import TimeOrder as TimeOrder
from readers import VideoReader as VideoReader
