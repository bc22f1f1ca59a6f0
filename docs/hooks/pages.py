"""A hook of MkDocs: pages and files from outside of docs/ become part of the site.

README, contributing guide, changelog and measurements become pages; the scripts and
notebooks that pages link to become files beside them. Links are written as a code host
needs them, relative to the file they stand in, and are changed here to places on the
site.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/RESULTS.md": "results.md",
}
_COPIED = (
    "examples/*.py",
    "examples/*.ipynb",
    "examples/kubernetes/*.yaml",
    "benchmarks/*.py",
    "LICENSE",
)
_LINK = re.compile(r"(\]\()([^)\s#]+)([^)]*\))")


def on_files(files, config):
    """Adds the pages and files that stand outside of docs/."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, target, content=text))
    for pattern in _COPIED:
        for path in sorted(ROOT.glob(pattern)):
            target = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, target, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, **kwargs):
    """Changes links relative to a file of the repository to links of the site."""
    sources = {target: source for source, target in PAGES.items()}
    path = page.file.src_uri
    source = sources.get(path, f"docs/{path}")

    def on_site(match):
        target = link_on_site(match[2], source, path)
        return f"{match[1]}{target}{match[3]}"

    return _LINK.sub(on_site, markdown)


def link_on_site(link, source, page):
    """Where the link of a file of the repository leads on a page of the site."""
    if link.startswith(("http:", "https:", "mailto:")):
        return link
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    target = PAGES.get(target, target.removeprefix("docs/"))
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
