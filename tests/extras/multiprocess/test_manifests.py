"""The manifests for Kubernetes: shown in the guide, valid, at one with themselves."""

import argparse
import copy
import pathlib

import pytest
import yaml

from effdet_keras.cli import train
from effdet_keras.extras.multiprocess.launch import launch_of

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


def indexed_job():
    return list(yaml.safe_load_all((FOLDER / "indexed_job.yaml").read_text()))


def test_there_are_manifests():
    assert [path.name for path in FILES] == ["indexed_job.yaml", "train_job.yaml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_guide_leads_to_the_file(path):
    guide = (ROOT / "docs" / "distributed.md").read_text()
    assert f"](../examples/kubernetes/{path.name})" in guide


def test_the_variables_of_the_job_launch_its_processes():
    service, job = indexed_job()
    pod = job["spec"]["template"]["spec"]
    names = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    job_name, count = job["metadata"]["name"], job["spec"]["completions"]
    launch = launch_of({**names, "JAX_PROCESS_ID": str(count - 1)})
    assert launch.num_processes == count == job["spec"]["parallelism"]
    assert launch.coordinator_host == f"{job_name}-0.{service['metadata']['name']}"
    assert launch.coordinator_port == service["spec"]["ports"][0]["port"]
    assert pod["subdomain"] == service["metadata"]["name"]
    selector = service["spec"]["selector"]
    assert selector == {"batch.kubernetes.io/job-name": job_name}


def test_the_commands_are_ones_that_the_program_takes():
    _, job = indexed_job()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    trainer = yaml.safe_load((FOLDER / "train_job.yaml").read_text())["spec"]["trainer"]
    for one in (container, trainer):
        program, command, *arguments = [*one["command"], *one["args"]]
        assert (program, command) == ("effdet-keras", "train")
        parsed = parsed_arguments(arguments)
        assert parsed.distribute == "jax" and parsed.resume


def parsed_arguments(arguments):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.extra_packages
def test_the_job_is_valid_for_kubernetes():
    validator = pytest.importorskip(
        "kubernetes_validate", reason="the schemas are in `kubernetes-validate`"
    )
    for document in indexed_job():
        validator.validate(document, "1.33", strict=True)
    wrong = copy.deepcopy(indexed_job()[1])
    wrong["spec"]["completion"] = 2
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, "1.33", strict=True)
