"""The variables of launchers: read as each sets them, and refused by name."""

import json

import pytest

from effdet_keras.extras.multiprocess.launch import Launch, launch_of

JAX = {
    "JAX_PROCESS_ID": "1",
    "JAX_NUM_PROCESSES": "3",
    "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job:29500",
    "JAX_COORDINATOR_PORT": "29500",  # Kubeflow Trainer sets both
}
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "8",  # of the job, of which this step has fewer
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],big1",
}


def tf_config(cluster, kind="worker", index=0):
    content = {"cluster": cluster, "task": {"type": kind, "index": index}}
    return {"TF_CONFIG": json.dumps(content)}


def summary(environ):
    launch = launch_of(environ)
    return launch.process_id, launch.num_processes, launch.coordinator


def test_without_variables_there_is_no_launch():
    assert launch_of({}) is None
    assert launch_of({"TF_CONFIG": "", "HOME": "/root"}) is None


def test_tf_config_names_all_workers():
    environ = tf_config({"worker": ["a:1", "b:2"]}, index=1)
    assert summary(environ) == (1, 2, "a:1")
    assert launch_of(environ).workers == ("a:1", "b:2")


def test_the_chief_of_tf_config_is_the_first_process():
    cluster = {"chief": ["c:1"], "worker": ["a:1", "b:1"]}
    assert summary(tf_config(cluster, "chief")) == (0, 3, "c:1")
    assert summary(tf_config(cluster, "worker", 1)) == (2, 3, "c:1")


def test_variables_of_jax_and_kubeflow():
    assert summary(JAX) == (1, 3, "job-node-0-0.job:29500")
    without_port = {**JAX, "JAX_COORDINATOR_ADDRESS": "job-node-0-0.job"}
    assert summary(without_port) == (1, 3, "job-node-0-0.job:29500")


def test_variables_of_torchrun():
    launch = launch_of(TORCHRUN)
    assert launch == Launch(3, 4, "node1:29500", "RANK")
    assert summary({**TORCHRUN, "MASTER_ADDR": "::1"})[2] == "[::1]:29500"
    assert launch_of({**TORCHRUN, "MASTER_ADDR": "::1"}).coordinator_host == "::1"


def test_the_port_on_which_torchrun_itself_listens_is_left_alone():
    environ = {**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    assert launch_of(environ).coordinator_port == 29501


@pytest.mark.parametrize(
    "nodes, first",
    [
        ("gpu[07-09,12],big1", "gpu07"),
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("n[3,5]-ib", "n3-ib"),
    ],
)
def test_variables_of_a_step_of_slurm(nodes, first):
    launch = launch_of({**SLURM, "SLURM_STEP_NODELIST": nodes})
    assert launch == Launch(2, 4, f"{first}:61442", "SLURM_STEP_NODELIST")


def test_all_processes_of_a_job_of_slurm_meet_at_one_port_of_their_own():
    def port(job):
        return launch_of({**SLURM, "SLURM_JOB_ID": str(job)}).coordinator_port

    assert port(1) != port(2)
    assert all(1024 < port(job) < 65536 for job in range(0, 10_000, 7))


def test_a_shell_of_slurm_is_no_step_and_other_launchers_run_inside_one():
    shell = {k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"}
    assert launch_of(shell) is None
    assert summary({**SLURM, **TORCHRUN}) == (3, 4, "node1:29500")


@pytest.mark.parametrize(
    "environ, said",
    [
        ({"TF_CONFIG": "worker 1"}, "TF_CONFIG='worker 1'"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG must be JSON"),
        (tf_config({"worker": []}), "at least one process.*TF_CONFIG"),
        (tf_config({"worker": ["a:1"]}, index=1), "must be below 1.*TF_CONFIG"),
        (tf_config({"worker": ["a:1"], "ps": ["b:1"]}), "parameter servers"),
        (tf_config({"worker": ["a:1"]}, "evaluator"), "each worker takes part"),
        ({**JAX, "JAX_NUM_PROCESSES": ""}, "has not set JAX_NUM_PROCESSES"),
        ({**JAX, "JAX_PROCESS_ID": "one"}, "JAX_PROCESS_ID='one'"),
        ({**JAX, "JAX_PROCESS_ID": "3"}, "must be below 3.*JAX_PROCESS_ID"),
        ({**JAX, "JAX_COORDINATOR_ADDRESS": "a:99999"}, "'host:port'.*JAX_PROCESS_ID"),
        ({**TORCHRUN, "MASTER_PORT": "-1"}, "MASTER_PORT='-1'"),
        ({**TORCHRUN, "MASTER_ADDR": " "}, "has not set MASTER_ADDR"),
        ({**SLURM, "SLURM_STEP_NODELIST": "[1-2]"}, "SLURM_STEP_NODELIST='\\[1-2\\]'"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "0"}, "at least one.*SLURM_STEP_NODELIST"),
    ],
)
def test_what_cannot_be_right_is_named(environ, said):
    with pytest.raises(ValueError, match=said):
        launch_of(environ)


def test_several_processes_need_an_address():
    with pytest.raises(ValueError, match="address to meet"):
        Launch(0, 2)
    assert Launch(0, 1).coordinator is None
