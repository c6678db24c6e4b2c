"""The matrix as a file of records that grows, and as a table."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence

from distrl.benchmark.chaos_cells import JOBS, Cell
from distrl.benchmark.measuring import Record, table

BROKEN = " (broken off)\n"  # how a line ends that could not be written whole


def cell_of(record: Record) -> Cell:
    """Raises ValueError for the record of something else."""
    try:
        return Cell(**{field: record[field] for field in Cell._fields})
    except KeyError as error:
        raise ValueError(f"expected the record of a cell, got {record}") from error


def append(path: pathlib.Path | None, record: Record) -> None:
    """Adds a line to the file, if there is to be one; another one that broke off ends
    there."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
        with path.open("a") as file:
            file.write(f"{'' if whole else BROKEN}{json.dumps(record)}\n")


def read(path: pathlib.Path) -> dict[Cell, Record]:
    """The newest record of each cell; lines that broke off are left out."""
    records = {}
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    for line in lines:
        if line.endswith(BROKEN[:-1]):
            continue
        record = json.loads(line)
        if set(Cell._fields) <= set(record):
            records[cell_of(record)] = record
    return records


def good(record: Record) -> bool:
    return not record["complaints"]


def matrix(records: Iterable[Record]) -> str:
    """Rows: agent and fault; columns: jobs. "ok 3/3", or how many were and what failed
    in the others."""
    cells: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in records:
        row = cells.setdefault((record["agent"], record["fault"]), {})
        row.setdefault(record["job"], []).append(record)
    if not cells:
        return "no cell"
    return table(
        [
            {"agent": agent, "fault": fault}
            | {job: _cell(row.get(job, ())) for job in JOBS}
            for (agent, fault), row in cells.items()
        ]
    )


def _cell(records: Sequence[Record]) -> str | None:
    if not records:
        return None
    ok = sum(map(good, records))
    whats = [c.partition(":")[0] for r in records for c in r["complaints"]]
    failed = ", ".join(dict.fromkeys(whats))
    share = f"{ok}/{len(records)}"
    return f"ok {share}" if not failed else f"{share}, {failed}"


def complaints(records: Iterable[Record]) -> list[str]:
    """Line by line, what failed where."""
    return [
        f"{cell_of(record).name}: {complaint}"
        for record in records
        for complaint in record["complaints"]
    ]
