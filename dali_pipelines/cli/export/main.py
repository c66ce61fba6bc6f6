"""Write a model repository for NVIDIA Triton with the preprocessing of a training.

    dali-pipelines export triton preprocess.toml -o models --name jpeg224
    dali-pipelines export triton preprocess.toml -o models --name aia --num_gpus 2 --max_batch 4

The settings are a file that Preprocessor.save wrote. OUT/NAME gets config.pbtxt, 1/model.py for
Triton's Python backend, and 1/preprocess.toml with its calibration tables. The server's Python
needs dali-pipelines. Requests have the inputs "content", UINT8 of shape (batch, bytes), padded to
the longest, and "nbytes", INT64 of shape (batch, 1), the lengths. "nbytes" may be omitted if all
lengths are equal. Outputs are those of the Loader, "image" and others.

The model is tried in this process before the folder gets its name, with the file of --example if
there is one. The exit status is 0; 1 if that failed, 2 for wrong usage, 130 if interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dali_pipelines.cli.errors import command, refusing
from dali_pipelines.cli.flag_types import at_least
from dali_pipelines.cli.options import option, parse


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Flags of `export`."""

    server: str = option("", "server to export for", positional=True, choices=("triton",))
    settings: str = option(
        "", "file that Preprocessor.save wrote", positional=True, metavar="PREPROCESS.toml"
    )
    out: str = option("", "model repository of the server, a folder", short="-o", required=True)
    name: str = option("", "name of the model", required=True)
    max_batch: int = option(
        16, "maximum number of contents in a batch, of one request or several", type=at_least(1)
    )
    instances: int = option(1, "processes on the CPU, or on each GPU", type=at_least(1))
    num_gpus: int = option(0, "GPUs to run on, 0 for the CPU", type=at_least(0))
    example: str | None = option(None, "preprocess this file to try the model", metavar="FILE")


@command("export")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 if the model does not work, 2 for wrong usage."""
    config = parse(ExportConfig, argv, __doc__, "export")
    with refusing(ImportError, OSError, ValueError):
        from dali_pipelines.serving.preprocessor import PreprocessError, Preprocessor
        from dali_pipelines.serving.triton import export

        with (
            Preprocessor.load(config.settings, framework="numpy") as preprocessor,
            refusing(PreprocessError, status=1, doing=f"{config.example}"),
        ):
            folder = export(
                preprocessor,
                config.out,
                config.name,
                max_batch=config.max_batch,
                instances=config.instances,
                num_gpus=config.num_gpus,
                example=config.example,
            )
    print(f"wrote {folder}: start the server with --model-repository={config.out}")
    return 0
