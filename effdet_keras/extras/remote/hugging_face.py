"""Files of `hf://owner/name`, by the library of the Hugging Face Hub.

Its own settings count: the login (`HF_TOKEN`, `hf auth login`), the cache folder
(`HF_HOME`), another server (`HF_ENDPOINT`), no network (`HF_HUB_OFFLINE`).
"""

import dataclasses
import hashlib
import pathlib
import re
import urllib.parse

from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.errors import InvalidValueError, first_line

_EXTRA = "effdet-keras[huggingface]"
huggingface_hub = OptionalModule("huggingface_hub", install=_EXTRA)
# A repository's letters are those that the hub allows; a revision has no slash: %2F.
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.*))?", re.I | re.A)
_LOGIN = "`hf auth login`, or a token in HF_TOKEN"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True)
class HubAddress:
    """What an address says."""

    repository: str
    revision: str | None
    path: str


def parse_hub_address(address):
    """The parts of `hf://owner/name@revision/path`."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InvalidValueError(
            "An address of the Hugging Face Hub is 'hf://owner/name', with '@revision' "
            "for a branch, tag or commit (of a slash in it, write %2F), and with the "
            f"path of a file in it. Received: '{address}'"
        )
    revision = urllib.parse.unquote(match[2]) if match[2] else None
    return HubAddress(match[1], revision, (match[3] or "").strip("/"))


def hub_library(address):
    """The module `huggingface_hub`, with its `errors` and `constants`."""
    hub = huggingface_hub.require(f"'{address}'")
    # Some versions give these two only to who imports them.
    OptionalModule("huggingface_hub.errors", install=_EXTRA).require()
    OptionalModule("huggingface_hub.constants", install=_EXTRA).require()
    return hub


def hub_files(address):
    """The files of the repository that an address is in."""
    hub, where = hub_library(address), parse_hub_address(address)
    try:
        info = hub.HfApi().model_info(where.repository, revision=where.revision)
    except Exception as error:  # of each web library its own, some no OSError
        kept = _kept(hub, where) if _is_unreachable(hub, error) else None
        if kept is None:
            raise error_of_hub(hub, error, address) from error
        return kept
    return [sibling.rfilename for sibling in info.siblings or []], info.sha


def hub_file(address):
    """The file at an address, in the library's cache folder."""
    hub, where = hub_library(address), parse_hub_address(address)
    try:
        path = hub.HfApi().hf_hub_download(
            where.repository, where.path, revision=where.revision
        )
    except Exception as error:  # see `hub_files`
        raise error_of_hub(hub, error, address) from error
    path = pathlib.Path(path)
    _check_digest(path, address)
    return path


def error_of_hub(hub, error, address):
    """The `OSError` that says of an error of the library what to do."""
    errors, where = hub.errors, parse_hub_address(address)
    page = f"{hub.constants.ENDPOINT}/{where.repository}"
    if isinstance(error, errors.GatedRepoError):
        return PermissionError(
            f"The repository of '{address}' is gated. Ask for access at {page}, then "
            f"log in with that account: {_LOGIN}."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return FileNotFoundError(
            f"There is no repository '{where.repository}' on the Hugging Face Hub that "
            f"this login can see. If it is private, log in: {_LOGIN}. "
            f"Received: '{address}'"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return FileNotFoundError(
            f"The repository '{where.repository}' has no branch, tag or commit "
            f"'{where.revision or 'main'}'. Received: '{address}'"
        )
    if isinstance(error, errors.EntryNotFoundError) and not _is_local(hub, error):
        return FileNotFoundError(f"There is no file '{address}'")
    if status_of(error) in (401, 403):
        return PermissionError(
            f"The Hugging Face Hub does not allow this with '{address}'. Log in with "
            f"an account that may: {_LOGIN}. ({first_line(error)})"
        )
    if _is_unreachable(hub, error):
        return ConnectionError(
            f"The Hugging Face Hub cannot be reached, and '{address}' is not in its "
            f"cache folder '{hub.constants.HF_HUB_CACHE}': {first_line(error)}"
        )
    return OSError(f"'{address}' cannot be opened: {first_line(error)}")


def error_of_push(hub, error, address, *, made):
    """The `OSError` that says why a push failed, and what is left of it."""
    left = (
        " The repository was made before that and stays, empty: push again, or delete "
        "it on the hub."
        if made
        else ""
    )
    start, status = f"The model was not pushed to '{address}': ", status_of(error)
    if isinstance(error, hub.errors.RepositoryNotFoundError) or status in (401, 403):
        return PermissionError(
            f"{start}this login may not write there. Log in with an account that may: "
            f"{_LOGIN}.{left} ({first_line(error)})"
        )
    if status == 412:
        return OSError(
            f"{start}somebody else's commit came in between. Look at it, then push "
            f"again.{left}"
        )
    if _is_unreachable(hub, error):
        return ConnectionError(
            f"{start}the Hugging Face Hub cannot be reached. Push again later.{left} "
            f"({first_line(error)})"
        )
    return OSError(f"{start}{first_line(error)}.{left}")


def status_of(error):
    """The status of the hub's answer, or None where there was none."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _is_local(hub, error):
    return isinstance(error, hub.errors.LocalEntryNotFoundError)


def _is_unreachable(hub, error):
    """Whether the hub gave no answer, or none that says something of the files."""
    if isinstance(error, hub.errors.HFValidationError):
        return False
    if _is_local(hub, error):
        return True
    status = status_of(error)
    if status is not None:
        return status >= 500
    # An error of this machine has a number, as those of connections have, too.
    is_of_this_machine = isinstance(error, OSError) and error.errno is not None
    return isinstance(error, ConnectionError) or not is_of_this_machine


def _kept(hub, where):
    """The files of a revision in the cache folder, and its commit; or None."""
    try:
        root = hub.snapshot_download(
            where.repository, revision=where.revision, local_files_only=True
        )
    except hub.errors.LocalEntryNotFoundError:
        return None
    files = filter(pathlib.Path.is_file, pathlib.Path(root).rglob("*"))
    names = [path.relative_to(root).as_posix() for path in files]
    return names, pathlib.Path(root).name


def _check_digest(path, address):
    """Large files lie in the cache under their SHA-256, which nobody else compares."""
    blob = path.resolve()
    if not _SHA256.fullmatch(blob.name):
        return
    with open(blob, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != blob.name:
        blob.unlink()
        path.unlink(missing_ok=True)
        raise OSError(
            f"'{address}' is damaged: its SHA-256 is {digest}, and that of the file on "
            f"the hub {blob.name}. What arrived was removed: fetch it again."
        )
