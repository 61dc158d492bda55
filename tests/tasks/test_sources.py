from __future__ import annotations

import hashlib
import http.server
import io
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.tasks.convert import Converted
from testbed.tasks.sources import DebianPackage, File, Folder, NpmPackage, UnavailableError, Website, download, unpack

CONTENT = b"a data set" * 100


def unread(folder: Path) -> Converted:
    raise AssertionError("sources do not read")


def published(content: bytes = CONTENT) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """/whole serves the content; /cut promises more than it sends; anything else is not there."""

    def do_GET(self) -> None:
        if self.path not in ("/whole", "/cut"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) * (1 if self.path == "/whole" else 3)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *words: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def site() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def tool(folder: Path, name: str, script: str) -> None:
    """A program of that name, first on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def into(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def test_a_website_gives_files_with_the_published_checksum(site: str, tmp_path: Path) -> None:
    folder = into(tmp_path)
    Website((File(f"{site}/whole", published()),), unread).obtain(folder)
    assert (folder / "whole").read_bytes() == CONTENT


@pytest.mark.parametrize("checksum", ["sha256:" + "0" * 64, "md5:" + "0" * 32])
def test_another_checksum_is_refused(site: str, tmp_path: Path, checksum: str) -> None:
    algorithm = checksum.split(":")[0]
    with pytest.raises(UnavailableError, match=f"whole: {algorithm} is .*, published is 000"):
        Website((File(f"{site}/whole", checksum),), unread).obtain(into(tmp_path))


def test_an_interrupted_download_is_noticed(site: str, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"/cut: (interrupted after 1000 of 3000 bytes|IncompleteRead)"):
        download(f"{site}/cut", into(tmp_path) / "cut")


def test_an_absent_file_or_server_is_noticed(site: str, tmp_path: Path) -> None:
    folder = into(tmp_path)
    with pytest.raises(UnavailableError, match="/absent: Not Found"):
        download(f"{site}/absent", folder / "absent")
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:9/nothing"):
        download("http://127.0.0.1:9/nothing", folder / "nothing")


def test_a_folder_stands_for_the_website(tmp_path: Path) -> None:
    website = Website((File("https://example.org/some/path/data.bin", published()),), unread)
    brought = tmp_path / "brought"
    brought.mkdir()
    folder = into(tmp_path)
    with pytest.raises(UnavailableError, match=r"brought has no data\.bin"):
        Folder(website.files, unread, brought).obtain(folder)
    (brought / "data.bin").write_bytes(CONTENT + b"!")
    with pytest.raises(UnavailableError, match=r"data\.bin: sha256 is"):
        Folder(website.files, unread, brought).obtain(folder)
    (brought / "data.bin").write_bytes(CONTENT)
    Folder(website.files, unread, brought).obtain(folder)
    assert (folder / "data.bin").read_bytes() == CONTENT


def test_missing_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = into(tmp_path)
    with pytest.raises(UnavailableError, match="needs npm, not found"):
        NpmPackage("some-package", "1.0.0", unread).obtain(folder)
    with pytest.raises(UnavailableError, match="needs apt-get and dpkg-deb, not found"):
        DebianPackage("some-package", unread).obtain(folder)


def archive(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_an_npm_package_is_packed_at_its_version_without_scripts_and_unpacked(tools: Path, tmp_path: Path) -> None:
    archive(tmp_path / "made.tgz", {"package/data/a.txt": CONTENT, "package/index.js": b"process.exit(1)"})
    tool(tools, "npm", f'echo "$@" > {tmp_path}/said; cp {tmp_path}/made.tgz ./some-package-1.2.3.tgz')
    folder = into(tmp_path)
    NpmPackage("some-package", "1.2.3", unread).obtain(folder)
    assert (tmp_path / "said").read_text().split() == ["pack", "--ignore-scripts", "--silent", "some-package@1.2.3"]
    assert (folder / "package/data/a.txt").read_bytes() == CONTENT


def test_a_tools_own_words_explain_its_failure(tools: Path, tmp_path: Path) -> None:
    tool(tools, "npm", "echo 'npm error 404 Not Found' >&2; echo >&2; exit 1")
    with pytest.raises(UnavailableError, match=r"npm pack .* absent@1\.0\.0: npm error 404 Not Found"):
        NpmPackage("absent", "1.0.0", unread).obtain(into(tmp_path))
    tool(tools, "apt-get", "echo 'E: Unable to locate package absent' >&2; exit 100")
    tool(tools, "dpkg-deb", "exit 0")
    with pytest.raises(UnavailableError, match=r"Unable to locate package absent \(perhaps `apt-get update` first\?\)"):
        DebianPackage("absent", unread).obtain(tmp_path / "raw")
    tool(tools, "npm", "exit 0")
    with pytest.raises(UnavailableError, match="npm pack left no archive"):
        NpmPackage("empty", "1.0.0", unread).obtain(tmp_path / "raw")


def test_a_debian_package_is_downloaded_and_unpacked(tools: Path, tmp_path: Path) -> None:
    tool(tools, "apt-get", f'echo "$@" > {tmp_path}/said; echo content > some-data_1.0_all.deb')
    tool(tools, "dpkg-deb", f'echo "$@" >> {tmp_path}/said; mkdir -p usr/share; cp "$2" usr/share/data')
    folder = into(tmp_path)
    DebianPackage("some-data", unread).obtain(folder)
    assert (tmp_path / "said").read_text().splitlines() == ["download some-data", "-x some-data_1.0_all.deb ."]
    assert (folder / "usr/share/data").read_text() == "content\n"


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/outside-of-the-folder.txt", "package/../../outside.txt"])
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    archive(tmp_path / "bad.tgz", {name: b"!"})
    with pytest.raises(UnavailableError, match="a path that leads outside"):
        unpack(tmp_path / "bad.tgz", into(tmp_path))
    assert not (tmp_path / "outside.txt").exists()
    assert not Path("/tmp/outside-of-the-folder.txt").exists()


def test_links_are_not_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "links.tgz", "w:gz") as tar:
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    folder = into(tmp_path)
    unpack(tmp_path / "links.tgz", folder)
    assert not list(folder.rglob("*"))


def test_a_broken_archive_is_noticed(tmp_path: Path) -> None:
    archive(tmp_path / "whole.tgz", {"a": os.urandom(5000)})
    (tmp_path / "half.tgz").write_bytes((tmp_path / "whole.tgz").read_bytes()[:2000])
    (tmp_path / "none.tgz").write_bytes(b"<html>not found</html>")
    folder = into(tmp_path)
    for name in ("half.tgz", "none.tgz"):
        with pytest.raises(UnavailableError, match=f"{name} cannot be unpacked"):
            unpack(tmp_path / name, folder)
