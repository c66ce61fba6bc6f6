from .aia.degradation import CorrectionTable as CorrectionTable
from .aia.pointing import PointingTable as PointingTable
from .aia.reader import AiaReader as AiaReader
from .aia.rules import HeaderRules as HeaderRules
from .audio.reader import AudioReader as AudioReader
from .buffers import buffer as buffer
from .channels import ChannelsReader as ChannelsReader
from .chunks.reader import ChunkedReader as ChunkedReader
from .contract import ClipFrames as ClipFrames
from .contract import Peek as Peek
from .contract import Reader as Reader
from .contract import Row as Row
from .contract import Sample as Sample
from .contract import SampleSpec as SampleSpec
from .errors import ReadError as ReadError
from .fits.multi_hdu import Hdu as Hdu
from .fits.reader import FitsReader as FitsReader
from .index.columns import Columns as Columns
from .index.rows.splitting import TimeBlocks as TimeBlocks
from .index.rows.splitting import TimeOrder as TimeOrder
from .index.table import Index as Index
from .jpeg.reader import JpegReader as JpegReader
from .npy import NpyReader as NpyReader
from .places.storage import Storage as Storage
from .sampling.blocks import BlockOrder as BlockOrder
from .sampling.blocks import BucketOrder as BucketOrder
from .sampling.draws import Draws as Draws
from .sampling.order import Order as Order
from .sampling.placement import Placement as Placement
from .sampling.schedule import Schedule as Schedule
from .sampling.schedule import Slot as Slot
from .sampling.schedule import Tail as Tail
from .sampling.shard import Shard as Shard
from .sampling.weighted import WeightedOrder as WeightedOrder
from .source import Source as Source
from .targets.boxes import Boxes as Boxes
from .targets.contract import Target as Target
from .targets.mask import Mask as Mask
from .video.reader import VideoReader as VideoReader
from .window import Window as Window
from .worker.read_report import ReadReport as ReadReport

DISTRIBUTION: str

__all__: list[str]
