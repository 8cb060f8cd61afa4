"""The sizes of dtypes, by all names that PyTorch writes."""

import re

_BYTES = {
    16: "complex128 complexdouble c128",
    8: "double float64 long longint longlong int64 int64t uint64 uint64t unsignedlong unsignedlonglong unsignedlongint"
    " complexfloat complex64 fp64 f64 i64 u64 c64",
    4: "float float32 int int32 int32t uint32 uint32t unsignedint complexhalf complex32 qint32 fp32 f32 tf32 i32 u32",
    2: "half float16 bfloat16 short shortint int16 int16t uint16 uint16t unsignedshort unsignedshortint bits16"
    " fp16 f16 bf16 i16 u16",
    1: "byte char bool int8 int8t uint8 uint8t signedchar unsignedchar qint8 quint8 quint4x2 quint2x4 bits1x8 bits2x4 "
    "bits4x2 bits8"
    " float8e4m3fn float8e5m2 float8e4m3fnuz float8e5m2fnuz float8e8m0fnu float4e2m1fnx2"
    " fp8 f8 i8 u8 int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
}
BYTES_OF_DTYPE = {name: size for size, names in _BYTES.items() for name in names.split()}


def bytes_per_element(dtype: str, unknown: int = 1) -> int:
    """Returns the size of a dtype by any of the names that PyTorch writes; `unknown` for another name."""
    return BYTES_OF_DTYPE.get(re.sub(r"c10::|torch\.|[^a-z0-9]", "", dtype.lower()), unknown)
