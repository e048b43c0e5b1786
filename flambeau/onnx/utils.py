"""torch.onnx.utils: the older place of the exporter."""

from __future__ import annotations

from flambeau import absent as _absent
from flambeau.onnx import _refuse
from flambeau.onnx import export as export
from flambeau.onnx import is_in_onnx_export as is_in_onnx_export

_TABLE = """
_export(model, args, f, **options) !
select_model_mode_for_export(model, mode) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "exporter")
