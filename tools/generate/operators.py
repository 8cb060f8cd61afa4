"""The schemas of the operators that the jobs use, by operator name; annotations and autograd nodes have none."""

SCHEMAS = {
    name.partition("(")[0].partition(".")[0]: name
    for name in (
        "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
        "aten::_foreach_zero_(Tensor(a!)[] self) -> ()",
        "aten::_local_scalar_dense(Tensor self) -> Scalar",
        "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
        "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
        "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        "aten::matmul(Tensor self, Tensor other) -> Tensor",
        "aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
        "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
        "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
        "aten::detach(Tensor(a) self) -> Tensor(a)",
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
        "bool sparse=False) -> Tensor",
        "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, "
        "bool scale_grad_by_freq) -> Tensor",
        "aten::empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, "
        "Device? device=None, bool? pin_memory=None) -> Tensor",
        "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)",
        "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
        "aten::item(Tensor self) -> Scalar",
        "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
        "aten::mm(Tensor self, Tensor mat2) -> Tensor",
        "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
        "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction) -> Tensor",
        "aten::mul.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
        "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
        "aten::mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
        "aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        "aten::relu(Tensor self) -> Tensor",
        "aten::stack(Tensor[] tensors, int dim=0) -> Tensor",
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "aten::t(Tensor(a) self) -> Tensor(a)",
        "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
        "aten::to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) "
        "-> Tensor(a)",
        "aten::zero_(Tensor(a!) self) -> Tensor(a!)",
        "c10d::_allgather_base_(Tensor output_tensor, Tensor input_tensor, "
        "__torch__.torch.classes.c10d.ProcessGroup process_group, bool async_op=True, int timeout=-1) "
        "-> (Tensor, __torch__.torch.classes.c10d.Work)",
        "c10d::_reduce_scatter_base_(Tensor output_tensor, Tensor input_tensor, "
        "__torch__.torch.classes.c10d.ProcessGroup process_group, __torch__.torch.classes.c10d.ReduceOp reduce_op, "
        "bool async_op=True, int timeout=-1) -> (Tensor, __torch__.torch.classes.c10d.Work)",
        "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, "
        "__torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True, "
        "int timeout=-1) -> (Tensor[], __torch__.torch.classes.c10d.Work)",
        "c10d::alltoall_base_(Tensor output, Tensor input, __torch__.torch.classes.c10d.ProcessGroup process_group, "
        "int[] output_split_sizes, int[] input_split_sizes, bool async_op=True, "
        "int timeout=-1) -> __torch__.torch.classes.c10d.Work",
        "c10d::recv_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, int src, int tag) "
        "-> __torch__.torch.classes.c10d.Work",
        "c10d::send(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, int dst, int tag) "
        "-> __torch__.torch.classes.c10d.Work",
    )
}
