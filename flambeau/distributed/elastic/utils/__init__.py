"""torch.distributed.elastic.utils: stores, ports, loggers, and names in commands."""

from flambeau.distributed.elastic.utils.api import get_env_variable_or_raise, get_socket_with_port, macros

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]
