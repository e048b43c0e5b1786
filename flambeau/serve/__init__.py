"""flambeau.serve: models over HTTP and gRPC. `flambeau serve DIR`; the packages are the extras flambeau[serve] and flambeau[grpc].

settings, datatypes, errors; programs (model files as functions of arrays), batching, versions and repository (what is loaded); inference, tensorflow, openai
(the protocols), language (continuous batching); connection (HTTP/1.1), application (paths), server, workers, grpc_server; metrics, logs, page, openapi.
"""

from __future__ import annotations

from typing import Any

from flambeau.serve.language import CausalModule as CausalModule
from flambeau.serve.language import LanguageModel as LanguageModel

__all__ = ["CausalModule", "LanguageModel", "Server", "ServerSettings", "TensorSpec"]


def __getattr__(name: str) -> Any:
    if name == "Server":  # which needs the packages of flambeau[serve]
        from flambeau.serve.server import Server

        return Server
    if name == "ServerSettings":
        from flambeau.serve.settings import ServerSettings

        return ServerSettings
    if name == "TensorSpec":
        from flambeau.serve.datatypes import TensorSpec

        return TensorSpec
    raise AttributeError(f"module 'flambeau.serve' has no attribute {name!r}")
