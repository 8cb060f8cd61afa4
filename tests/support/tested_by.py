"""Which tests concern a module: the test of its name, or another that is listed here with it, then those near it."""

from pathlib import Path

from support.folders import TESTS

TESTED_BY = {
    "cli/test_link_and_convert.py": """
        schema/errors schema/progress tools/command tools/command_parser tools/commands/argument_types
        tools/commands/trace_convert tools/commands/trace_link
    """,
    "cli/test_trace_merge.py": "tools/merge/merge_traces tools/merge/report tools/merge/survey",
    "cli/test_trace_replay.py": """
        tools/commands/scale_options tools/replay/workload
    """,
    "cli/test_trace_scale.py": "tools/scale_job/scale_job tools/scale_job/scale_report tools/scale_job/write_copies",
    "cli/test_wrong_kinds.py": "tools/inputs/wrong_kind",
    "compat/test_simulator_contract.py": "tools/build_job/finish_rank",
    "converter/building/test_calling_slices.py": "schema/linked/called_from",
    "converter/building/test_communication.py": """
        converter/building/communication_columns linker/communication/collective_ops
        linker/communication/communication schema/linked/communications
    """,
    "converter/dependencies/test_tensor_flow.py": "converter/storages/named_ranges",
    "converter/dependencies/test_waits_as_edges.py": """
        converter/dependencies/waits
        converter/dependencies/inferred
    """,
    "converter/device_time/test_start_timing.py": "converter/device_time/delays converter/device_time/concurrency_limit",
    "converter/edit/test_device_only.py": "converter/edit/added_nodes",
    "converter/edit/test_lanes.py": """
        converter/edit/lane_clocks converter/edit/uncovered_time converter/targets/control schema/columns/groups
        schema/columns/intervals
    """,
    "converter/edit/test_order.py": "converter/edit/circles",
    "converter/host_timeline/test_timeline.py": """
        converter/host_timeline/host_nodes converter/host_timeline/host_spans
        converter/host_timeline/short_slices
    """,
    "converter/kernel_work/test_kernel_work.py": "converter/kernel_work/sharing",
    "converter/kernel_work/test_op_works.py": """
        converter/kernel_work/elementwise converter/kernel_work/family converter/kernel_work/memory_ops
        converter/kernel_work/recorded_op converter/kernel_work/table
    """,
    "converter/network/test_fitted_network.py": """
        converter/network/fit_errors converter/network/simulated_cost converter/network/transfer_cost
    """,
    "converter/ranks/test_calls.py": """
        converter/ranks/applying converter/ranks/communication_summary converter/ranks/groups
    """,
    "converter/scaling/test_group_roles.py": "converter/scaling/group_use",
    "converter/scaling/test_plan.py": """
        converter/ranks/recorded_groups converter/scaling/copies converter/scaling/group_numbering
        converter/scaling/named_groups converter/scaling/rank_copies converter/scaling/rank_facts
    """,
    "converter/targets/goal/test_job.py": """
        converter/targets/goal/collective converter/targets/goal/cpu_crossing
        converter/targets/goal/goal_file converter/targets/goal/goal_options converter/targets/goal/operations
        converter/targets/goal/rank_communication converter/targets/goal/rank_messages
        converter/targets/goal/rank_program
    """,
    "converter/targets/test_astra_sim.py": "converter/targets/select",
    "converter/targets/test_small_graphs.py": "converter/targets/host_delays converter/targets/ready_set",
    "converter/test_convert.py": """
        converter/building/attributes converter/building/gaps converter/dependencies/orders
    """,
    "converter/test_jsonizer.py": "schema/graph/json_form tools/commands/trace_jsonize",
    "converter/test_options.py": "schema/choices",
    "docs/test_formats.py": "schema/graph/attributes",
    "docs/test_summary_lines.py": "tools/summary_lines",
    "fuzz/test_circles.py": "schema/columns/trees",
    "fuzz/test_hostile_files.py": "schema/traces/arguments",
    "integration/test_same_content.py": "linker/readers/tied_rows",
    "linker/contradictions/test_contradictions.py": "linker/contradictions/contradiction",
    "linker/host_communication/test_host_transfers.py": """
        linker/host_communication/messages_in_flight linker/host_communication/idle_gaps
        linker/host_communication/storage_users
    """,
    "linker/machine/test_measured_machine.py": "schema/machine",
    "linker/modules/test_modules.py": "linker/modules/module_paths linker/modules/stacks",
    "linker/readers/test_device_events.py": """
        linker/readers/clock_range linker/readers/device_rows linker/readers/device_tables linker/readers/event_rows
        schema/traces/kineto schema/traces/names schema/traces/numbers
    """,
    "linker/readers/test_host_trace.py": "schema/traces/attributes schema/traces/host",
    "linker/readers/test_merged.py": "schema/traces/merged_ranks",
    "linker/submissions/test_named_events.py": "schema/traces/sync_calls",
    "linker/test_link.py": "linker/activity_rows",
    "linker/threads/test_handoffs.py": "linker/threads/forward_threads linker/threads/thread_activity",
    "linker/waits/test_candidates.py": "linker/waits/options",
    "linker/waits/test_synchronisation.py": "linker/submissions/process",
    "linker/waits/test_unresolved_waits.py": "linker/waits/resolved_waits",
    "linker/windows/test_windows.py": "schema/traces/steps",
    "project/test_plain_install.py": "schema/optional tools/package/start",
    "schema/columns/test_workspace.py": """
        schema/columns/builders schema/columns/bytes_column schema/columns/json_records schema/columns/lookups
        schema/columns/row_map schema/columns/table
    """,
    "schema/graph/test_et_file.py": """
        schema/graph/decoder schema/graph/encoder schema/graph/execution_graph schema/graph/framing
        schema/graph/integer_kinds schema/graph/json_file schema/graph/known_attributes schema/graph/message_checks
        schema/graph/node_problems schema/graph/nodes schema/graph/varints schema/graph/wire schema/graph/wire_types
    """,
    "schema/io/test_compressed.py": "schema/io/files",
    "schema/linked/test_file.py": """
        linker/foreign schema/linked/check schema/linked/guesses schema/linked/layout schema/linked/linked_trace
        schema/linked/nodes schema/linked/older schema/linked/reader schema/linked/streams schema/linked/tables
        schema/linked/words schema/linked/writer
    """,
    "schema/recovery/test_json_stream.py": """
        schema/recovery/damage schema/recovery/elements schema/recovery/plain_letters schema/recovery/repair
        schema/recovery/structure
    """,
    "schema/traces/test_tensor_columns.py": "schema/traces/argument_texts",
    "schema/traces/test_literals.py": "schema/traces/plain_arguments",
    "tools/analyses/collectives/test_collectives.py": """
        tools/analyses/collectives/arrivals tools/analyses/collectives/matched tools/analyses/collectives/over_ranks
        tools/analyses/collectives/waits
    """,
    "tools/analyses/graphs/test_attribution.py": "tools/analyses/rank/captures",
    "tools/analyses/memory/test_timeline.py": "tools/analyses/memory/curves tools/analyses/rank/recorded",
    "tools/analyses/modules/test_modules.py": """
        tools/analyses/modules/difference tools/analyses/modules/shares tools/analyses/modules/tree
    """,
    "tools/analyses/ops/test_ops.py": """
        schema/linked/call_tree tools/analyses/ops/frequent_kernel_patterns tools/analyses/ops/host_time_per_op
        tools/analyses/ops/op_kinds tools/analyses/ops/per_op_device_time tools/analyses/trace_diff
    """,
    "tools/analyses/test_critical_path.py": """
        tools/analyses/counters/cupti tools/analyses/counters/over_time tools/replay/path_crossings
    """,
    "tools/analyses/test_device_time.py": """
        tools/analyses/idle_time_breakdown tools/analyses/kernel_breakdown
        tools/analyses/kernel_duration_distribution tools/analyses/kernel_statistics
        tools/analyses/launch_statistics tools/analyses/overlap tools/analyses/rank/annotations
        tools/analyses/rank/first_start tools/analyses/rank/classes tools/analyses/rank/intervals
        tools/analyses/rank/rank_trace tools/analyses/rank/shapes tools/analyses/temporal_breakdown
    """,
    "tools/analyses/test_efficiency.py": "schema/device_peaks tools/analyses/rank/graph_alone tools/replay/roofline",
    "tools/analyses/test_empty_tables.py": "tools/analyses/rank/table",
    "tools/analyses/test_overlay.py": "tools/analyses/write_overlay",
    "tools/analyses/test_step_breakdown.py": "tools/analyses/rank/steps",
    "tools/build_job/test_cross_rank.py": """
        tools/build_job/first_difference tools/build_job/issued tools/build_job/rank_comms
    """,
    "tools/build_job/test_folder.py": "schema/io/alone tools/build_job/build_report tools/build_job/leftovers",
    "tools/build_job/test_goal_job.py": "tools/commands/goal_options",
    "tools/build_job/test_job.py": """
        tools/build_job/build_options tools/build_job/build_rank tools/build_job/job_plan tools/commands/trace_build
        tools/workers
    """,
    "tools/capture/test_recorder.py": "tools/capture/pair_recorder",
    "tools/diagnose/test_diagnosis.py": """
        tools/commands/trace_diagnose tools/diagnose/comparison tools/diagnose/findings tools/diagnose/inspection
        tools/diagnose/text tools/diagnose/versions tools/diagnose/wording
    """,
    "tools/findings/test_rules.py": """
        tools/findings/absent_ranks tools/findings/data_loader tools/findings/exposed_communication
        tools/findings/heaviest_op tools/findings/host_waits tools/findings/idle_between_steps
        tools/findings/job/finding tools/findings/job/job tools/findings/job/rank_facts tools/findings/late_start
        tools/findings/matrix_products tools/findings/memory_peaks tools/findings/missing_records
        tools/findings/pageable_copies tools/findings/pauses tools/findings/shared_device
        tools/findings/small_kernels tools/findings/straggler tools/findings/unexplained_time
    """,
    "tools/findings/test_verdict.py": "tools/findings/job/recording_cost",
    "tools/generate/test_generate.py": """
        tools/commands/trace_generate tools/generate/instructions tools/generate/job tools/generate/programs/buckets
        tools/generate/programs/distributed_jobs tools/generate/programs/jobs tools/generate/programs/layers
        tools/generate/programs/nccl tools/generate/programs/operators tools/generate/programs/pipeline_jobs
        tools/generate/programs/process tools/generate/programs/script tools/generate/programs/sharded_job
        tools/generate/programs/single_device_jobs tools/generate/simulation/device tools/generate/simulation/engine
        tools/generate/simulation/host_work tools/generate/simulation/launching tools/generate/simulation/record
        tools/generate/simulation/scaling tools/generate/simulation/state tools/generate/simulation/thread_queues
        tools/generate/simulation/waiting tools/generate/writing/chrome tools/generate/writing/device_trace
        tools/generate/writing/host_arguments tools/generate/writing/host_trace
        tools/generate/writing/identity tools/generate/writing/kineto_args tools/generate/writing/kineto_ops
        tools/generate/writing/python_rows tools/generate/writing/recorded_activities tools/generate/writing/truth
    """,
    "tools/inputs/test_pairs.py": """
        tools/inputs/kinds tools/inputs/one_pair tools/inputs/recognise tools/inputs/trace_files
    """,
    "tools/merge/test_one_rank.py": "tools/merge/rocpd_rows",
    "tools/merge/test_viewing.py": "tools/merge/rewrite",
    "tools/replay/test_execution.py": """
        tools/replay/critical_path tools/replay/node_class tools/replay/one_job
    """,
    "tools/replay/test_host_collectives.py": "tools/replay/rank_clocks tools/replay/rendezvous",
    "tools/report/test_embedded.py": "tools/report/cells",
    "tools/report/test_overview.py": "tools/report/absent",
    "tools/report/test_page.py": """
        tools/report/charts/charts tools/report/charts/drawing tools/report/charts/flame_graph
        tools/report/charts/matrices tools/report/charts/overview_charts
        tools/report/charts/roofline tools/report/drawn_page tools/report/files
    """,
    "tools/report/test_rank_groups.py": "tools/rank_rows",
    "tools/report/test_report.py": """
        tools/commands/analysis_options tools/commands/trace_report tools/report/module_tree tools/report/sections
        tools/report/text tools/report/words
    """,
    "tools/report/timeline/test_timeline.py": """
        tools/report/timeline/bars tools/report/timeline/detail tools/report/timeline/packed
        tools/report/timeline/picture tools/report/timeline/summary
    """,
    "tools/test_terminal.py": "schema/io/plain",
    "tools/simulator/test_simulated_ranks.py": """
        tools/simulator/configuration tools/simulator/network tools/simulator/transfers
    """,
    "tools/view/flow/test_data_flow.py": """
        tools/phase_names tools/view/flow/arrows tools/view/flow/boxes tools/view/flow/calls tools/view/flow/chosen_calls
        tools/view/flow/flows tools/view/flow/layers tools/view/flow/picture tools/view/flow/placement
        tools/view/flow/wording
    """,
    "tools/view/test_graph_view.py": """
        tools/commands/trace_view tools/view/graph_formats tools/view/kernel_names tools/view/lane_names
        tools/view/lane_picture tools/view/write_view tools/view/xml_text tools/view_forms
    """,
}
"""The modules without a test file of their own, by the test that covers them."""

ALSO = {
    "linker": "linker/test_link.py compat/test_matrix.py",
    "linker/communication": "integration/test_communication.py compat/test_versions.py",
    "linker/machine": "integration/test_clocks.py integration/test_device_time.py integration/test_concurrency_limit.py",
    "linker/matching": "integration/test_match.py integration/test_windows.py",
    "linker/modules": "tools/analyses/modules/test_modules.py",
    "linker/readers": """
        compat/test_versions.py integration/test_damage.py integration/test_merged.py compat/test_rocpd.py
        schema/recovery/test_json_stream.py
    """,
    "linker/submissions": """
        linker/waits/test_synchronisation.py linker/waits/test_candidates.py linker/waits/test_unresolved_waits.py
        integration/test_event_rows.py integration/test_host_holds.py
    """,
    "linker/threads": "converter/dependencies/test_handoff.py integration/test_windows.py",
    "linker/waits": "integration/test_host_holds.py integration/test_event_rows.py",
    "linker/windows": "integration/test_windows.py integration/test_match.py",
    "converter": "converter/test_convert.py integration/test_host_timeline.py compat/test_matrix.py",
    "converter/building": """
        integration/test_communication.py linker/host_communication/test_host_communication.py
        converter/targets/test_astra_sim.py converter/targets/test_serial_time.py schema/test_comm_groups.py
        integration/test_delays.py integration/test_windows.py converter/edit/test_order.py
    """,
    "converter/dependencies": "linker/waits/test_synchronisation.py",
    "converter/device_time": """
        integration/test_delays.py integration/test_device_time.py integration/test_concurrency_limit.py
        converter/host_timeline/test_submit_times.py linker/machine/test_measured_machine.py
        integration/test_windows.py
    """,
    "converter/edit": """
        converter/targets/test_small_graphs.py converter/targets/test_astra_sim.py
        converter/targets/test_serial_time.py converter/ranks/test_consensus.py integration/test_communication.py
        tools/build_job/test_cross_rank.py compat/test_simulator_contract.py tools/replay/test_execution.py
    """,
    "converter/host_timeline": """
        converter/dependencies/test_handoff.py linker/waits/test_synchronisation.py
        integration/test_device_time.py
    """,
    "converter/ranks": """
        tools/build_job/test_cross_rank.py converter/targets/test_groups.py converter/targets/test_unplayable.py
        integration/test_renamed_group.py integration/test_joint_replay.py compat/test_simulator_contract.py
    """,
    "converter/storages": "converter/dependencies/test_tensor_flow.py",
    "converter/targets": """
        integration/test_communication.py tools/build_job/test_cross_rank.py schema/test_comm_groups.py
        converter/edit/test_lanes.py compat/test_simulator_contract.py
    """,
}
"""For the modules in a folder, tests elsewhere that find mistakes in them."""


def own_test(module: str) -> str:
    """Where the test of a module is, or would be, below tests/: `linker/link` -> `linker/test_link.py`."""
    folder, _, name = module.rpartition("/")
    return f"{'cli' if folder == 'tools/commands' else folder}/test_{name}.py"


def tests_of(module: str) -> tuple[str, ...]:
    """Returns the tests that concern a module, below tests/, the most telling first."""
    module = module.removesuffix(".py")
    own = own_test(module)
    folder = own.rpartition("/")[0]
    listed = [test for test, modules in TESTED_BY.items() if module in modules.split()]
    near = [str(path.relative_to(TESTS)) for path in sorted((TESTS / folder).glob("test_*.py"))]
    also = [test for place in (folder, *map(str, Path(folder).parents)) for test in ALSO.get(place, "").split()]
    return tuple(dict.fromkeys([*([own] if own in near else []), *listed, *near, *also]))
