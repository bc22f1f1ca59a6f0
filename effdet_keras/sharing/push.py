"""An archive as a commit of a repository of the Hugging Face Hub."""

import json

from effdet_keras._internal.hugging_face import hub_library, parse_hub_address, told
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.sharing.card import GENERATED, model_card
from effdet_keras.weights.archive import (
    ARCHIVE_ENTRY,
    BEST_FILE,
    checkpoint_file,
    read_archive_info,
)

_CARD = "README.md"
_OF_THE_HUB = {".gitattributes", _CARD}
# What else an archive notes, such as the random state, is of its training alone.
_TOLD = (
    *("format", "config", "class_names", "category_ids", "score_settings"),
    *("versions", "created", "epoch"),
)


def push_archive(
    path,
    address,
    *,
    license=None,
    private=None,
    overwrite=False,
    data=None,
    numbers=None,
):
    """Uploads an archive with a model card, in one commit.

    A repository that is not there is made. One that has this model already, of the
    same network and classes, gets a new commit: its older ones stay in its history. A
    card in which somebody removed the line that says who wrote it is kept.

    Args:
        path: path of an archive, or of a folder of `CheckpointArchive`.
        address: string, `hf://owner/name`.
        license: string, as the hub spells it; None writes none.
        private: bool, whether a new repository is private; None is the hub's default.
        overwrite: bool, whether a repository of something else may get this model.
        data, numbers: see `model_card`.

    Returns:
        string, the address of the commit.

    Raises:
        FileExistsError: If the repository has something else.
        PermissionError, OSError: If the hub does not allow it, or is not reached.
        ImportError: If the extra `huggingface` is not installed.
    """
    where = parse_hub_address(address)
    if where.path or where.revision:
        raise InvalidValueError(
            "A model is pushed to the main branch of a whole repository, "
            f"'hf://owner/name'. Received: '{address}'"
        )
    hub = hub_library(address)
    path = checkpoint_file(path, BEST_FILE)
    info = read_archive_info(path)
    described = {name: info[name] for name in _TOLD if name in info}
    api = hub.HfApi()
    try:
        there = _info(hub, api, where.repository)
        if there is None:
            made = api.create_repo(where.repository, private=private)
            where = parse_hub_address(f"hf://{made.repo_id}")
            names, parent = [], None
        else:
            _check_private(there, private, address)
            names, parent = [s.rfilename for s in there.siblings or []], there.sha
        _check_same(api, where.repository, names, described, address, overwrite)
        card = model_card(
            info, where.repository, license=license, data=data, numbers=numbers
        )
        contents = {BEST_FILE: str(path)}
        contents[ARCHIVE_ENTRY] = json.dumps(described, indent=1).encode()
        if _is_generated(api, where.repository, names):
            contents[_CARD] = card.encode()
        commit = api.create_commit(
            where.repository,
            [
                hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
                for name, content in contents.items()
            ],
            commit_message="Model of effdet-keras",
            parent_commit=parent,  # what was looked at is what gets the commit
        )
    except (FileExistsError, InvalidStateError, InvalidValueError):
        raise
    except Exception as error:  # of each web library its own, some no OSError
        raise told(hub, error, address) from error
    return commit.commit_url


def _info(hub, api, repository):
    try:
        return api.model_info(repository)
    except hub.errors.GatedRepoError:
        raise
    except hub.errors.RepositoryNotFoundError:
        return None


def _check_private(there, private, address):
    if private and not there.private:
        raise InvalidStateError(
            f"'{address}' is there and public: nothing was pushed. Make it private in "
            "its settings on the hub, or leave `private` (--private) out."
        )


def _check_same(api, repository, names, described, address, overwrite):
    """Refuses a repository that has another model, or files of something else."""
    others = sorted(set(names) - _OF_THE_HUB)
    if overwrite or not others:
        return
    if ARCHIVE_ENTRY in names:
        path = api.hf_hub_download(repository, ARCHIVE_ENTRY)
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
        if all(before.get(k) == described.get(k) for k in ("config", "class_names")):
            return
    raise FileExistsError(
        f"'{address}' has another model already, or other files: "
        f"{', '.join(others[:8])}. Give another name; or pass `overwrite` "
        "(--overwrite) for a commit in which this model takes their place."
    )


def _is_generated(api, repository, names):
    if _CARD not in names:
        return True
    with open(api.hf_hub_download(repository, _CARD), encoding="utf-8") as file:
        text = file.read()
    # Of a repository made on the web, the card has a front matter alone.
    return GENERATED in text or not text.rpartition("---")[2].strip()
