"""The messages of TensorBoard's event files, as its *.proto files number their fields."""

from __future__ import annotations

from typing import Any, Final

from flambeau.utils.tensorboard.wire import define
from flambeau.utils.tensorboard.wire import message as message

define(
    """
Summary: 1* value Summary.Value
Summary.Value: 7 node_name string, 1 tag string, 9 metadata SummaryMetadata, 2 simple_value float?, 4 image Summary.Image, 5 histo HistogramProto, 6 audio Summary.Audio, 8 tensor TensorProto
SummaryMetadata: 1 plugin_data SummaryMetadata.PluginData, 2 display_name string, 3 summary_description string
SummaryMetadata.PluginData: 1 plugin_name string, 2 content bytes
Summary.Image: 1 height int, 2 width int, 3 colorspace int, 4 encoded_image_string bytes
HistogramProto: 1 min double, 2 max double, 3 num double, 4 sum double, 5 sum_squares double, 6* bucket_limit double, 7* bucket double
Summary.Audio: 1 sample_rate float, 2 num_channels int, 3 length_frames int, 4 encoded_audio_string bytes, 5 content_type string
TensorProto: 1 dtype int, 2 tensor_shape TensorShapeProto, 4 tensor_content bytes, 13* half_val int, 5* float_val float, 6* double_val double, 7* int_val int, 8* string_val bytes, 9* scomplex_val float, 10* int64_val int, 11* bool_val bool, 12* dcomplex_val double, 16* uint32_val int
TensorShapeProto: 2* dim TensorShapeProto.Dim, 3 unknown_rank bool
TensorShapeProto.Dim: 1 size int, 2 name string
Event: 1 wall_time double, 2 step int, 3 file_version string?, 4 graph_def bytes?, 5 summary Summary, 7 session_log SessionLog, 8 tagged_run_metadata TaggedRunMetadata
SessionLog: 1 status int, 2 checkpoint_path string, 3 msg string
TaggedRunMetadata: 1 tag string, 2 run_metadata bytes
PrCurvePluginData: 1 version int, 2 num_thresholds int
TextPluginData: 1 version int
HParamsPluginData: 1 version int, 2 experiment Experiment, 3 session_start_info SessionStartInfo, 4 session_end_info SessionEndInfo
Experiment: 6 name string, 1 description string, 2 user string, 3 time_created_secs double, 4* hparam_infos HParamInfo, 5* metric_infos MetricInfo
HParamInfo: 1 name string, 2 display_name string, 3 description string, 4 type int, 5 domain_discrete ListValue
ListValue: 1* values Value
Value: 2 number_value double?, 3 string_value string?, 4 bool_value bool?
MetricInfo: 1 name MetricName, 3 display_name string, 4 description string, 5 dataset_type int
MetricName: 1 group string, 2 tag string
SessionStartInfo: 1* hparams SessionStartInfo.HparamsEntry, 2 model_uri string, 3 monitor_url string, 4 group_name string, 5 start_time_secs double
SessionStartInfo.HparamsEntry: 1 key string, 2 value Value
SessionEndInfo: 1 status int, 2 end_time_secs double
Layout: 1 version int, 2* category Category
Category: 1 title string, 2* chart Chart, 3 closed bool
Chart: 1 title string, 2 multiline MultilineChartContent, 3 margin MarginChartContent
MultilineChartContent: 1* tag string
MarginChartContent: 1* series MarginChartContent.Series
MarginChartContent.Series: 1 value string, 2 lower string, 3 upper string
MeshPluginData: 1 version int, 2 name string, 3 content_type int, 5 json_config string, 6* shape int, 7 components int
"""  # noqa: E501
)

# Numbers of names.
DTYPES: Final = {
    "DT_FLOAT": 1, "DT_DOUBLE": 2, "DT_INT32": 3, "DT_UINT8": 4, "DT_INT16": 5, "DT_INT8": 6, "DT_STRING": 7, "DT_COMPLEX64": 8, "DT_INT64": 9, "DT_BOOL": 10,
    "DT_COMPLEX128": 18, "DT_HALF": 19,
}  # fmt: skip
MESH_CONTENT: Final = {"VERTEX": 1, "FACE": 2, "COLOR": 3}
PARAMETER_TYPES: Final = {"STRING": 1, "BOOL": 2, "FLOAT64": 3}
SESSION_START: Final = 1
STATUS_SUCCESS: Final = 1


def tensor(kind: str, **content: Any) -> Any:
    """A TensorProto of a dtype by its name."""
    return message("TensorProto")(dtype=DTYPES[kind], **content)
