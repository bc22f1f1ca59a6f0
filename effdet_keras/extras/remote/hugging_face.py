"""Reads files at `hf://owner/name` and `hf://datasets/owner/name`.

The hub's own library fetches them, and its settings apply: the login (`HF_TOKEN`, `hf
auth login`), the cache folder (`HF_HOME`), another server (`HF_ENDPOINT`), no network
(`HF_HUB_OFFLINE`).
"""

import contextlib
import pathlib
import re
import urllib.parse
from typing import NamedTuple

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import EffDetError, InvalidValueError

huggingface_hub = OptionalModule("huggingface_hub", "effdet-keras[huggingface]")
# Names have the characters that the hub allows. A slash in a revision is written %2F.
_ADDRESS = re.compile(
    r"hf://(datasets/(?=[^/]+/[^/]))?([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?",
    re.I | re.A,
)


class HubAddress(NamedTuple):
    repository: str
    revision: str | None
    path: str
    repo_type: str = "model"  # or "dataset", as the library calls it


def parse_hub_address(address):
    """Parses `hf://owner/name@revision/path`, with or without `datasets/` in front."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InvalidValueError(
            "An address of the Hugging Face Hub is 'hf://owner/name', or "
            "'hf://datasets/owner/name' for a dataset. It may be followed by "
            "'@revision' for a branch, tag or commit (write a slash in it as %2F), "
            f"and by the path of a file in the repository. Received: '{address}'"
        )
    revision = urllib.parse.unquote(match[3]) if match[3] else None
    repo_type = "dataset" if match[1] else "model"
    return HubAddress(match[2], revision, (match[4] or "").strip("/"), repo_type)


def hub_files(address):
    """Returns the files of the repository of an address, and their commit."""
    hub, where = huggingface_hub.require(f"'{address}'"), parse_hub_address(address)
    with errors_of_hub(hub, f"'{address}' cannot be opened"):
        try:
            info = hub.HfApi().repo_info(
                where.repository, revision=where.revision, repo_type=where.repo_type
            )
        except Exception as error:  # without a network, use what was fetched before
            with contextlib.suppress(hub.errors.LocalEntryNotFoundError):
                return _kept_files(hub, where)
            raise error
    return [sibling.rfilename for sibling in info.siblings or []], info.sha


def _kept_files(hub, where):
    root = pathlib.Path(
        hub.snapshot_download(
            where.repository,
            revision=where.revision,
            repo_type=where.repo_type,
            local_files_only=True,
        )
    )
    files = filter(pathlib.Path.is_file, root.rglob("*"))
    return [path.relative_to(root).as_posix() for path in files], root.name


def hub_file(address):
    """Returns the path of a file in the library's cache folder, fetched if needed."""
    hub, where = huggingface_hub.require(f"'{address}'"), parse_hub_address(address)
    with errors_of_hub(hub, f"'{address}' cannot be opened"):
        path = hub.HfApi().hf_hub_download(
            where.repository,
            where.path,
            revision=where.revision,
            repo_type=where.repo_type,
        )
    return pathlib.Path(path)


@contextlib.contextmanager
def errors_of_hub(hub, what):
    """Converts errors of the library to `OSError`; their text names the cure."""
    try:
        yield
    except (EffDetError, FileExistsError):
        raise
    except Exception as error:  # each web library has its own, not always an OSError
        errors = hub.errors
        absent = errors.RepositoryNotFoundError, errors.RevisionNotFoundError
        absent += (errors.EntryNotFoundError,)
        is_offline = isinstance(error, errors.LocalEntryNotFoundError)
        is_absent = isinstance(error, absent) and not is_offline
        kind = FileNotFoundError if is_absent else OSError
        raise kind(f"{what}: {' '.join(str(error).split())}") from error
