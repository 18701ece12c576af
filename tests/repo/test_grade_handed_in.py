"""Files that students and learning platforms hand over: the package is found, or the row says why not."""

import bz2
import gzip
import io
import os
import socket
import struct
import sys
import tarfile
import zipfile

import pytest
from handed_in import REFERENCE, write

from tiny_llm_course.grading import archives, submissions
from tiny_llm_course.grading.submissions import DAMAGED, TOO_LONG, find_submissions

TASK = "x = 1\n"  # what `write` writes
NORM = "layer_norm.py"
NO_ENTRY = "expected a folder, a ZIP or tar archive, or a file of the package such as attention.py"


def zipped(file, *names, method=zipfile.ZIP_DEFLATED):
    """Write a ZIP file with these files, or with the files in a mapping."""
    file.parent.mkdir(parents=True, exist_ok=True)
    contents = names[0] if isinstance(names[0], dict) else dict.fromkeys(names, TASK)
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo()
            info.filename, info.compress_type = name, method  # backslashes too: ZipInfo replaces them on Windows
            archive.writestr(info, content)
    return file


def tarred(file, mode, *names):
    with tarfile.open(file, mode) as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(TASK)
            archive.addfile(info, io.BytesIO(TASK.encode()))


def header(name, size, kind):
    """Return the header of a member of a tar archive."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def damage(file, start, count):
    content = bytearray(file.read_bytes())
    content[start : start + count] = b"\xff" * count
    file.write_bytes(content)


def encrypt(file):
    """Mark all files in an archive as encrypted."""
    content = file.read_bytes()
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(mark) + place
        content = content[:at] + struct.pack("<H", 1) + content[at + 2 :]
    file.write_bytes(content)


def linked_tar(file):
    with tarfile.open(file, "w") as archive:
        for name, kind in ((NORM, tarfile.SYMTYPE), ("basics.py", tarfile.FIFOTYPE), ("mlp.py", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(f"tiny_llm/{name}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)


# Keyed by the row's name: a function that makes the entry of the folder, and the files that are found.
FOUND = {
    "STUDENT_123_assignsubmission_file_": (lambda at: zipped(at / "submission.zip", f"tiny_llm/{NORM}"), [NORM]),
    "STUDENT_124_file": (lambda at: zipped(at / "submission.zip", f"hw/src/tiny_llm/{NORM}", "hw/a.md"), [NORM]),
    "STUDENT_125_file": (lambda at: write(at / NORM), [NORM]),
    "beside": (lambda at: zipped(at.with_suffix(".zip"), f"p/src/tiny_llm/{NORM}", "p/b/c.py", "d/e", "f"), [NORM]),
    "backslashes": (lambda at: zipped(at.with_suffix(".zip"), f"p\\tiny_llm\\{NORM}", "p\\x\\y"), [NORM]),
    "twice packed": (
        lambda at: zipped(
            at.with_suffix(".zip"), {"in/it.zip": zipped(at.parent.parent / "x.zip", f"tiny_llm/{NORM}").read_bytes()}
        ),
        [NORM],
    ),
    "tar": (lambda at: tarred(at.with_suffix(".tar"), "w", f"./tiny_llm/{NORM}", "./x/y"), [NORM]),
    "tar.gz": (lambda at: tarred(at.parent / "tar.gz.tar.gz", "w:gz", f"hw/tiny_llm/{NORM}"), [NORM]),
    "tgz": (lambda at: tarred(at.with_suffix(".tgz"), "w:gz", NORM), [NORM]),
    "tar.xz": (lambda at: tarred(at.parent / "tar.xz.tar.xz", "w:xz", NORM), [NORM]),
    "kernels only": (lambda at: write(at / "kernels" / "swiglu.cpp"), ["kernels/swiglu.cpp"]),
    "lee_1234_5678": (
        lambda at: [write(at.with_name(f"lee_1234_5678_{name}")) for name in ("attention-1.py", "page_pool.py")],
        ["attention.py", "serving/page_pool.py"],
    ),
    "kim": (lambda at: write(at.with_name("kim_paged_attention.cpp")), ["kernels/paged_attention.cpp"]),
    "attention": (lambda at: write(at.with_name("attention.py")), ["attention.py"]),
    "its own clone": (
        lambda at: [
            write(at / name / NORM)
            for name in ("src/tiny_llm", "src/tiny_llm_ref", "src/tiny_llm_course/pristine", ".venv/tiny_llm")
        ],
        [NORM],
    ),
    "paths that lead out": (
        lambda at: zipped(at.with_suffix(".zip"), f"tiny_llm/{NORM}", "../../evil.py", "tiny_llm/../../x.py", "/etc/x"),
        [NORM],
    ),
}

# Keyed by the row's name: a function that makes the entry, and the reason why nothing is graded.
REFUSED = {
    "nothing": (lambda at: at.mkdir(), "expected a package tiny_llm, found none: no files"),
    "other files": (
        lambda at: [write(at / name) for name in ("a.md", "b/c.txt", "d", "e")],
        "expected a package tiny_llm, found none among a.md, b/c.txt, d and 1 more",
    ),
    "only the reference": (
        lambda at: write(at / "src" / "tiny_llm_ref" / NORM),
        "expected a package tiny_llm, found none: no files",
    ),
    "two": (
        lambda at: zipped(at.with_suffix(".zip"), f"a/tiny_llm/{NORM}", f"b/tiny_llm/{NORM}"),
        "expected one package tiny_llm, found 2, in a/tiny_llm, b/tiny_llm",
    ),
    "two archives": (
        lambda at: [zipped(at / name, NORM) for name in ("a.zip", "b.zip")],
        "expected one package tiny_llm, found one in each of a.zip, b.zip",
    ),
    "ron": (
        lambda at: [write(at.with_name(f"ron_{name}")) for name in ("mlp.py", "mlp (1).py")],
        "expected mlp.py once, found it in ron_mlp (1).py, ron_mlp.py",
    ),
    "report.pdf": (write, NO_ENTRY),
    "helpers.py": (write, NO_ENTRY),
    "work.rar": (write, NO_ENTRY),
    "damaged": (
        lambda at: damage(zipped(at.with_suffix(".zip"), {NORM: os.urandom(999).hex()}), 60, 400),
        "cannot be read: Error -3 while decompressing data",
    ),
    "encrypted": (
        lambda at: encrypt(zipped(at.with_suffix(".zip"), NORM)),
        "expected an archive without a password, got an encrypted one",
    ),
    "no archive": (lambda at: write(at.with_suffix(".zip"), "Rar!"), "cannot be read: truncated header"),
    "empty file": (lambda at: write(at.with_suffix(".zip"), ""), "cannot be read: empty file"),
    "cut off": (
        lambda at: at.with_suffix(".tgz").write_bytes(gzip.compress(os.urandom(9999))[:500]),
        "cannot be read: Compressed file ended before",
    ),
    "bomb": (
        lambda at: zipped(at.with_suffix(".zip"), {NORM: b"#" * 2**25}),
        "expected up to 500 files and 20,971,520 bytes, got 1 files, 33,554,432 bytes",
    ),
    "bomb in an archive": (
        lambda at: zipped(at.with_suffix(".zip"), {"x.zip": b"\0" * (2**28 + 1)}),
        "x.zip: expected up to 256 MiB unpacked, got more",
    ),
    "bomb of a tar": (
        lambda at: at.with_suffix(".tbz2").write_bytes(bz2.compress(b"\0" * 2**28) + bz2.compress(b"\0")),
        "expected up to 256 MiB unpacked, got more",
    ),
    "negative": (
        lambda at: at.with_suffix(".tar").write_bytes(negative_size()),
        "the archive is damaged",
    ),
    "fifo": (lambda at: os.mkfifo(at.with_suffix(".zip")), f"{NO_ENTRY}; got a FIFO"),
    "fifo_mlp": (lambda at: os.mkfifo(at.with_name("fifo_mlp_mlp.py")), f"{NO_ENTRY}; got a FIFO"),
    "socket.py": (lambda at: listening(at), f"{NO_ENTRY}; got a socket"),
    "link": (lambda at: at.symlink_to(REFERENCE), f"{NO_ENTRY}; got a link"),
    "link to nothing": (lambda at: at.symlink_to("nowhere"), f"{NO_ENTRY}; got a link"),
    "links in a tar": (
        lambda at: linked_tar(at.with_suffix(".tar")),
        "expected files such as attention.py, found "
        "basics.py (not a regular file), layer_norm.py (a link), mlp.py (a link)",
    ),
    "capital letters": (
        lambda at: zipped(at.with_suffix(".zip"), f"tiny_llm/{NORM}", "tiny_llm/mlp.py", "tiny_llm/Layer_Norm.py"),
        "expected names that differ in more than capital letters, found Layer_Norm.py, layer_norm.py",
    ),
    "a linked package": (
        lambda at: [at.mkdir(), (at / "tiny_llm").symlink_to(REFERENCE)],
        "expected a package tiny_llm, found none among tiny_llm (a link)",
    ),
}

# Keyed by the row's name: a function that makes the entry, and the message about files that are left out.
NOTED = {
    "with a FIFO": (lambda at: [write(at / NORM), os.mkfifo(at / "mlp.py")], "left out: mlp.py (a FIFO)"),
    "with a link": (lambda at: [write(at / NORM), (at / "mlp.py").symlink_to(NORM)], "left out: mlp.py (a link)"),
    "with a copy": (lambda at: [write(at / NORM), write(at / "mlp (1).py")], "left out: mlp (1).py"),
    "with an older one": (
        lambda at: [write(at / "tiny_llm" / NORM), write(at / "old" / "tiny_llm" / NORM)],
        "left out: the package in old/tiny_llm",
    ),
    "with a kernel next to it": (
        lambda at: [write(at / name) for name in (f"tiny_llm/{NORM}", "kernels/softmax.cpp", "notes/todo.py")],
        "left out: kernels/softmax.cpp",
    ),
    "with an archive": (lambda at: [write(at / NORM), zipped(at / "x.zip", NORM)], "left out: x.zip"),
    "with a broken archive": (lambda at: [zipped(at / "x.zip", NORM), write(at / "y.zip")], "left out: y.zip"),
}


def negative_size():
    """Return an archive with a member of size -512, for which some versions of tarfile read the same header for
    ever."""
    content = bytearray(header(NORM, 0, tarfile.REGTYPE))
    content[124:136] = (-512).to_bytes(12, "big", signed=True)
    content[148:156] = b" " * 8
    content[148:156] = f"{sum(content):06o}\0 ".encode()
    return bytes(content) + bytes(1024)


def listening(at):
    here = os.getcwd()
    os.chdir(at.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(at.name)
    finally:
        os.chdir(here)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Put all entries into one folder, as an instructor gets them, and return the rows."""
    folder = tmp_path_factory.mktemp("class") / "handed in"
    folder.mkdir()
    for name, (make, _) in (FOUND | REFUSED | NOTED).items():
        make(folder / name)
    for junk in (".DS_Store", "Thumbs.db", "__MACOSX/x"):
        write(folder / junk)
    write(folder / "grades.csv")
    (folder.parent / "x.zip").unlink()
    return {row.name: row for row in find_submissions([folder], apart_from=folder / "grades.csv")}


def test_there_is_a_row_for_everything_that_was_handed_in(rows):
    assert set(rows) == {*FOUND, *REFUSED, *NOTED}


@pytest.mark.parametrize("name", FOUND)
def test_the_package_is_found(rows, name):
    assert rows[name].problem == rows[name].note == ""
    assert rows[name].files == dict.fromkeys(FOUND[name][1], TASK.encode())


@pytest.mark.parametrize("name", REFUSED)
def test_the_row_says_why_not(rows, name):
    assert rows[name].problem.startswith(REFUSED[name][1])
    assert not rows[name].files


@pytest.mark.parametrize("name", NOTED)
def test_the_row_says_what_was_left_out(rows, name):
    assert rows[name].note == NOTED[name][1]
    assert rows[name].files == {NORM: TASK.encode()}
    assert not rows[name].problem


@pytest.mark.parametrize("make", [lambda at, *names: [write(at / name) for name in names], zipped])
def test_files_of_other_programs_do_not_count(tmp_path, monkeypatch, make):
    monkeypatch.setattr(archives, "MAX_ENTRIES", 1)
    make(tmp_path / "ann", NORM, ".venv/a.py", ".venv/b/c.py", "b/node_modules/d.py")
    assert [*archives.tree_of(tmp_path / "ann")] == [NORM]
    make(tmp_path / "bob", NORM, "mlp.py")
    with pytest.raises(archives.RefusedError, match="expected up to 1 files, got more"):
        archives.tree_of(tmp_path / "bob")


def test_a_virtual_environment_is_not_searched(tmp_path, monkeypatch):
    """A virtual environment has tens of thousands of files, and the disk may be slow."""
    write(tmp_path / ".venv" / "lib" / "mlp.py")
    write(tmp_path / NORM)
    seen, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: seen.append(folder) or scandir(folder))
    archives.tree_of(tmp_path)
    assert [*map(str, seen)] == [str(tmp_path)]


def test_an_archive_that_takes_hours_to_read_is_given_up(tmp_path, monkeypatch):
    """In some versions of tarfile, the time for such a header grows with the square of the header's length."""
    body = b"1" * 2**19
    (tmp_path / "slow.tar").write_bytes(header("x", len(body), b"x") + body + header(NORM, 0, b"0") + bytes(1024))
    monkeypatch.setattr(submissions, "SECONDS", 2)
    [slow] = find_submissions([tmp_path / "slow.tar"])
    assert slow.problem in (TOO_LONG, "expected a package tiny_llm, found none: no files")


def test_a_reader_that_dies_costs_only_its_submission(tmp_path, monkeypatch):
    write(tmp_path / "ann" / NORM)
    monkeypatch.setattr(submissions, "TAKE", "tiny_llm_course.grading.nowhere")
    [ann] = find_submissions([tmp_path])
    assert ann.problem == DAMAGED


def test_names_are_on_one_line_and_valid_text(tmp_path):
    names = [
        *([] if sys.platform == "darwin" else [b"caf\xe9"]),  # whose names are always UTF-8
        b"a\n  2 of 2  mallory",
        b"b\x1b[2K",
        b"c\r\t",
        "d\u202e\u2028\x9b".encode(),
        "田中".encode(),
    ]
    for name in names:
        write(tmp_path / os.fsdecode(name) / NORM)
    zipped(tmp_path / "e\n.zip", "f\x1b.txt")
    rows = find_submissions([tmp_path])
    assert [row.name for row in rows] == [
        r"a\n  2 of 2  mallory",
        r"b\x1b[2K",
        r"c\r\t",
        *([] if sys.platform == "darwin" else [r"caf\xe9"]),
        r"d\u202e\u2028\x9b",
        r"e\n",
        "田中",
    ]
    assert rows[-2].problem == r"expected a package tiny_llm, found none among f\x1b.txt"


def test_equal_names_are_numbered(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / name / "ann" / NORM)
    zipped(tmp_path / "b" / "ann.zip", NORM)
    write(tmp_path / "b" / "ann (2)" / NORM)
    found = find_submissions([tmp_path / "a", tmp_path / "b"])
    assert [row.name for row in found] == ["ann (1)", "ann (3)", "ann (2)", "ann (4)"]


@pytest.mark.parametrize("name", ["src/tiny_llm/basics.py", "tiny_llm/serving/engine.py", "basics.py"])
def test_a_folder_with_the_package_at_its_top_is_one(tmp_path, name):
    write(tmp_path / name)
    write(tmp_path / "README.md")
    [one] = find_submissions([tmp_path])
    assert (one.name, list(one.files.values())) == (tmp_path.name, [TASK.encode()])


def test_the_digest_is_of_the_files(tmp_path):
    for name, content in (("a", TASK), ("b", TASK), ("c", "x = 2\n"), ("d", "")):
        write(tmp_path / name / NORM, content)
    write(tmp_path / "e" / "mlp.py")
    a, b, *others = find_submissions([tmp_path])
    assert a.digest == b.digest
    assert len({one.digest for one in (a, *others)}) == 4
