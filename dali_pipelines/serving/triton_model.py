"""Model of Triton's Python backend that preprocesses images for inference.

`dali-pipelines export triton` copies this file into a model repository.
"""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils  # part of Triton

from dali_pipelines.serving.triton import load, respond


class TritonPythonModel:
    """Model whose requests are batches of contents."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the settings beside this file, and build the graphs."""
        self.preprocessor = load(args)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Preprocess the contents of all requests as one batch."""
        return respond(self.preprocessor, requests, pb_utils)

    def finalize(self) -> None:
        """Free the graphs."""
        self.preprocessor.close()
