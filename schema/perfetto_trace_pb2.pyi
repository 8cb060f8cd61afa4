from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Packet(_message.Message):
    __slots__ = ("clock_snapshot", "timestamp", "sequence", "track_event", "interned_data", "sequence_flags", "incremental_state_cleared", "compressed_packets", "gpu_counter_event", "gpu_render_stage_event", "timestamp_clock_id", "defaults", "track_descriptor")
    CLOCK_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TRACK_EVENT_FIELD_NUMBER: _ClassVar[int]
    INTERNED_DATA_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    INCREMENTAL_STATE_CLEARED_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_PACKETS_FIELD_NUMBER: _ClassVar[int]
    GPU_COUNTER_EVENT_FIELD_NUMBER: _ClassVar[int]
    GPU_RENDER_STAGE_EVENT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_CLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    TRACK_DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    clock_snapshot: ClockSnapshot
    timestamp: int
    sequence: int
    track_event: TrackEvent
    interned_data: InternedData
    sequence_flags: int
    incremental_state_cleared: bool
    compressed_packets: bytes
    gpu_counter_event: GpuCounterEvent
    gpu_render_stage_event: GpuRenderStageEvent
    timestamp_clock_id: int
    defaults: Defaults
    track_descriptor: TrackDescriptor
    def __init__(self, clock_snapshot: _Optional[_Union[ClockSnapshot, _Mapping]] = ..., timestamp: _Optional[int] = ..., sequence: _Optional[int] = ..., track_event: _Optional[_Union[TrackEvent, _Mapping]] = ..., interned_data: _Optional[_Union[InternedData, _Mapping]] = ..., sequence_flags: _Optional[int] = ..., incremental_state_cleared: bool = ..., compressed_packets: _Optional[bytes] = ..., gpu_counter_event: _Optional[_Union[GpuCounterEvent, _Mapping]] = ..., gpu_render_stage_event: _Optional[_Union[GpuRenderStageEvent, _Mapping]] = ..., timestamp_clock_id: _Optional[int] = ..., defaults: _Optional[_Union[Defaults, _Mapping]] = ..., track_descriptor: _Optional[_Union[TrackDescriptor, _Mapping]] = ...) -> None: ...

class Trace(_message.Message):
    __slots__ = ("packet",)
    PACKET_FIELD_NUMBER: _ClassVar[int]
    packet: _containers.RepeatedCompositeFieldContainer[Packet]
    def __init__(self, packet: _Optional[_Iterable[_Union[Packet, _Mapping]]] = ...) -> None: ...

class ClockSnapshot(_message.Message):
    __slots__ = ("clocks", "primary_trace_clock")
    class Clock(_message.Message):
        __slots__ = ("clock_id", "timestamp", "is_incremental", "unit_multiplier_ns")
        CLOCK_ID_FIELD_NUMBER: _ClassVar[int]
        TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
        IS_INCREMENTAL_FIELD_NUMBER: _ClassVar[int]
        UNIT_MULTIPLIER_NS_FIELD_NUMBER: _ClassVar[int]
        clock_id: int
        timestamp: int
        is_incremental: bool
        unit_multiplier_ns: int
        def __init__(self, clock_id: _Optional[int] = ..., timestamp: _Optional[int] = ..., is_incremental: bool = ..., unit_multiplier_ns: _Optional[int] = ...) -> None: ...
    CLOCKS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_TRACE_CLOCK_FIELD_NUMBER: _ClassVar[int]
    clocks: _containers.RepeatedCompositeFieldContainer[ClockSnapshot.Clock]
    primary_trace_clock: int
    def __init__(self, clocks: _Optional[_Iterable[_Union[ClockSnapshot.Clock, _Mapping]]] = ..., primary_trace_clock: _Optional[int] = ...) -> None: ...

class Defaults(_message.Message):
    __slots__ = ("track_event", "timestamp_clock_id")
    TRACK_EVENT_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_CLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    track_event: TrackEvent
    timestamp_clock_id: int
    def __init__(self, track_event: _Optional[_Union[TrackEvent, _Mapping]] = ..., timestamp_clock_id: _Optional[int] = ...) -> None: ...

class TrackDescriptor(_message.Message):
    __slots__ = ("uuid", "name", "process", "thread", "parent_uuid")
    class Process(_message.Message):
        __slots__ = ("pid", "name")
        PID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        pid: int
        name: bytes
        def __init__(self, pid: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...
    class Thread(_message.Message):
        __slots__ = ("pid", "tid", "name")
        PID_FIELD_NUMBER: _ClassVar[int]
        TID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        pid: int
        tid: int
        name: bytes
        def __init__(self, pid: _Optional[int] = ..., tid: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    PARENT_UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: int
    name: bytes
    process: TrackDescriptor.Process
    thread: TrackDescriptor.Thread
    parent_uuid: int
    def __init__(self, uuid: _Optional[int] = ..., name: _Optional[bytes] = ..., process: _Optional[_Union[TrackDescriptor.Process, _Mapping]] = ..., thread: _Optional[_Union[TrackDescriptor.Thread, _Mapping]] = ..., parent_uuid: _Optional[int] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("name_iid", "name", "bool_value", "uint_value", "int_value", "double_value", "string_value", "pointer_value", "json_value", "string_iid", "entries", "items")
    NAME_IID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    UINT_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    POINTER_VALUE_FIELD_NUMBER: _ClassVar[int]
    JSON_VALUE_FIELD_NUMBER: _ClassVar[int]
    STRING_IID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    name_iid: int
    name: bytes
    bool_value: bool
    uint_value: int
    int_value: int
    double_value: float
    string_value: bytes
    pointer_value: int
    json_value: bytes
    string_iid: int
    entries: _containers.RepeatedCompositeFieldContainer[Annotation]
    items: _containers.RepeatedCompositeFieldContainer[Annotation]
    def __init__(self, name_iid: _Optional[int] = ..., name: _Optional[bytes] = ..., bool_value: bool = ..., uint_value: _Optional[int] = ..., int_value: _Optional[int] = ..., double_value: _Optional[float] = ..., string_value: _Optional[bytes] = ..., pointer_value: _Optional[int] = ..., json_value: _Optional[bytes] = ..., string_iid: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ..., items: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ...) -> None: ...

class TrackEvent(_message.Message):
    __slots__ = ("category_iids", "annotations", "legacy", "type", "name_iid", "track_uuid", "categories", "name", "old_flow_ids", "old_terminating_flow_ids", "flow_ids", "terminating_flow_ids", "gpu_correlation")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[TrackEvent.Type]
        BEGIN: _ClassVar[TrackEvent.Type]
        END: _ClassVar[TrackEvent.Type]
        INSTANT: _ClassVar[TrackEvent.Type]
        COUNTER: _ClassVar[TrackEvent.Type]
    UNSPECIFIED: TrackEvent.Type
    BEGIN: TrackEvent.Type
    END: TrackEvent.Type
    INSTANT: TrackEvent.Type
    COUNTER: TrackEvent.Type
    class Legacy(_message.Message):
        __slots__ = ("name_iid", "phase", "duration_us")
        NAME_IID_FIELD_NUMBER: _ClassVar[int]
        PHASE_FIELD_NUMBER: _ClassVar[int]
        DURATION_US_FIELD_NUMBER: _ClassVar[int]
        name_iid: int
        phase: int
        duration_us: int
        def __init__(self, name_iid: _Optional[int] = ..., phase: _Optional[int] = ..., duration_us: _Optional[int] = ...) -> None: ...
    class GpuCorrelation(_message.Message):
        __slots__ = ("event_ids",)
        EVENT_IDS_FIELD_NUMBER: _ClassVar[int]
        event_ids: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, event_ids: _Optional[_Iterable[int]] = ...) -> None: ...
    CATEGORY_IIDS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    LEGACY_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_IID_FIELD_NUMBER: _ClassVar[int]
    TRACK_UUID_FIELD_NUMBER: _ClassVar[int]
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OLD_FLOW_IDS_FIELD_NUMBER: _ClassVar[int]
    OLD_TERMINATING_FLOW_IDS_FIELD_NUMBER: _ClassVar[int]
    FLOW_IDS_FIELD_NUMBER: _ClassVar[int]
    TERMINATING_FLOW_IDS_FIELD_NUMBER: _ClassVar[int]
    GPU_CORRELATION_FIELD_NUMBER: _ClassVar[int]
    category_iids: _containers.RepeatedScalarFieldContainer[int]
    annotations: _containers.RepeatedCompositeFieldContainer[Annotation]
    legacy: TrackEvent.Legacy
    type: TrackEvent.Type
    name_iid: int
    track_uuid: int
    categories: _containers.RepeatedScalarFieldContainer[bytes]
    name: bytes
    old_flow_ids: _containers.RepeatedScalarFieldContainer[int]
    old_terminating_flow_ids: _containers.RepeatedScalarFieldContainer[int]
    flow_ids: _containers.RepeatedScalarFieldContainer[int]
    terminating_flow_ids: _containers.RepeatedScalarFieldContainer[int]
    gpu_correlation: TrackEvent.GpuCorrelation
    def __init__(self, category_iids: _Optional[_Iterable[int]] = ..., annotations: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ..., legacy: _Optional[_Union[TrackEvent.Legacy, _Mapping]] = ..., type: _Optional[_Union[TrackEvent.Type, str]] = ..., name_iid: _Optional[int] = ..., track_uuid: _Optional[int] = ..., categories: _Optional[_Iterable[bytes]] = ..., name: _Optional[bytes] = ..., old_flow_ids: _Optional[_Iterable[int]] = ..., old_terminating_flow_ids: _Optional[_Iterable[int]] = ..., flow_ids: _Optional[_Iterable[int]] = ..., terminating_flow_ids: _Optional[_Iterable[int]] = ..., gpu_correlation: _Optional[_Union[TrackEvent.GpuCorrelation, _Mapping]] = ...) -> None: ...

class Interned(_message.Message):
    __slots__ = ("iid", "name")
    IID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    iid: int
    name: bytes
    def __init__(self, iid: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class InternedStage(_message.Message):
    __slots__ = ("iid", "name", "category")
    IID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    iid: int
    name: bytes
    category: int
    def __init__(self, iid: _Optional[int] = ..., name: _Optional[bytes] = ..., category: _Optional[int] = ...) -> None: ...

class InternedKernel(_message.Message):
    __slots__ = ("iid", "name", "demangled_name")
    IID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEMANGLED_NAME_FIELD_NUMBER: _ClassVar[int]
    iid: int
    name: bytes
    demangled_name: bytes
    def __init__(self, iid: _Optional[int] = ..., name: _Optional[bytes] = ..., demangled_name: _Optional[bytes] = ...) -> None: ...

class InternedData(_message.Message):
    __slots__ = ("categories", "names", "annotation_names", "stages", "strings", "kernels", "argument_names")
    CATEGORIES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_NAMES_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_NAMES_FIELD_NUMBER: _ClassVar[int]
    categories: _containers.RepeatedCompositeFieldContainer[Interned]
    names: _containers.RepeatedCompositeFieldContainer[Interned]
    annotation_names: _containers.RepeatedCompositeFieldContainer[Interned]
    stages: _containers.RepeatedCompositeFieldContainer[InternedStage]
    strings: _containers.RepeatedCompositeFieldContainer[Interned]
    kernels: _containers.RepeatedCompositeFieldContainer[InternedKernel]
    argument_names: _containers.RepeatedCompositeFieldContainer[Interned]
    def __init__(self, categories: _Optional[_Iterable[_Union[Interned, _Mapping]]] = ..., names: _Optional[_Iterable[_Union[Interned, _Mapping]]] = ..., annotation_names: _Optional[_Iterable[_Union[Interned, _Mapping]]] = ..., stages: _Optional[_Iterable[_Union[InternedStage, _Mapping]]] = ..., strings: _Optional[_Iterable[_Union[Interned, _Mapping]]] = ..., kernels: _Optional[_Iterable[_Union[InternedKernel, _Mapping]]] = ..., argument_names: _Optional[_Iterable[_Union[Interned, _Mapping]]] = ...) -> None: ...

class GpuRenderStageEvent(_message.Message):
    __slots__ = ("event_id", "duration", "context", "extra_data", "gpu_id", "queue_iid", "stage_iid", "name", "event_wait_ids", "kernel_iid", "name_iid", "launch")
    class ExtraData(_message.Message):
        __slots__ = ("name", "value")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        name: bytes
        value: bytes
        def __init__(self, name: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...
    class Dimensions(_message.Message):
        __slots__ = ("x", "y", "z")
        X_FIELD_NUMBER: _ClassVar[int]
        Y_FIELD_NUMBER: _ClassVar[int]
        Z_FIELD_NUMBER: _ClassVar[int]
        x: int
        y: int
        z: int
        def __init__(self, x: _Optional[int] = ..., y: _Optional[int] = ..., z: _Optional[int] = ...) -> None: ...
    class Argument(_message.Message):
        __slots__ = ("name_iid", "name", "int_value", "uint_value")
        NAME_IID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        INT_VALUE_FIELD_NUMBER: _ClassVar[int]
        UINT_VALUE_FIELD_NUMBER: _ClassVar[int]
        name_iid: int
        name: bytes
        int_value: int
        uint_value: int
        def __init__(self, name_iid: _Optional[int] = ..., name: _Optional[bytes] = ..., int_value: _Optional[int] = ..., uint_value: _Optional[int] = ...) -> None: ...
    class Launch(_message.Message):
        __slots__ = ("grid", "block", "arguments")
        GRID_FIELD_NUMBER: _ClassVar[int]
        BLOCK_FIELD_NUMBER: _ClassVar[int]
        ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
        grid: GpuRenderStageEvent.Dimensions
        block: GpuRenderStageEvent.Dimensions
        arguments: _containers.RepeatedCompositeFieldContainer[GpuRenderStageEvent.Argument]
        def __init__(self, grid: _Optional[_Union[GpuRenderStageEvent.Dimensions, _Mapping]] = ..., block: _Optional[_Union[GpuRenderStageEvent.Dimensions, _Mapping]] = ..., arguments: _Optional[_Iterable[_Union[GpuRenderStageEvent.Argument, _Mapping]]] = ...) -> None: ...
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    EXTRA_DATA_FIELD_NUMBER: _ClassVar[int]
    GPU_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IID_FIELD_NUMBER: _ClassVar[int]
    STAGE_IID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_WAIT_IDS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_IID_FIELD_NUMBER: _ClassVar[int]
    NAME_IID_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    event_id: int
    duration: int
    context: int
    extra_data: _containers.RepeatedCompositeFieldContainer[GpuRenderStageEvent.ExtraData]
    gpu_id: int
    queue_iid: int
    stage_iid: int
    name: bytes
    event_wait_ids: _containers.RepeatedScalarFieldContainer[int]
    kernel_iid: int
    name_iid: int
    launch: GpuRenderStageEvent.Launch
    def __init__(self, event_id: _Optional[int] = ..., duration: _Optional[int] = ..., context: _Optional[int] = ..., extra_data: _Optional[_Iterable[_Union[GpuRenderStageEvent.ExtraData, _Mapping]]] = ..., gpu_id: _Optional[int] = ..., queue_iid: _Optional[int] = ..., stage_iid: _Optional[int] = ..., name: _Optional[bytes] = ..., event_wait_ids: _Optional[_Iterable[int]] = ..., kernel_iid: _Optional[int] = ..., name_iid: _Optional[int] = ..., launch: _Optional[_Union[GpuRenderStageEvent.Launch, _Mapping]] = ...) -> None: ...

class GpuCounterEvent(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
