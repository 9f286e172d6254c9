"""The Machine: the example programs, Tiles as arrays, faults, registers, memory, states."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import bitcube
from conftest import SOURCE, same

PROGRAMS = Path(SOURCE) / "examples" / "programs"
WORKED = ["first", "memory", "retry"] + [f"w{i}" for i in range(1, 11)]

PRODUCT = ["BSTART.TMATMUL FP16", "B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0", "B.DIM zero, 2, ->LB0",
           "B.DIM zero, 2, ->LB1", "B.DIM zero, 3, ->LB2", "B.IOT T#1, T#2, mask=1000, <last>, ->U<1>", "BSTOP"]
A = np.array([[1, 2, 3], [4, 5, 6]], np.float16)
B = np.array([[1, 2], [3, 4], [5, 6]], np.float16)


@pytest.fixture
def machine():
    m = bitcube.Machine()
    m.set_tile(0, "T#1", A, "CUBE_M16")
    m.set_tile(0, "T#2", np.asfortranarray(B), "CUBE_N8")
    return m


@pytest.mark.parametrize("name", WORKED)
def test_examples(program, name):
    """Counts, flags, Tiles and the final state are those of `bitcube run`."""
    path = PROGRAMS / (name + ".s")
    report = program.run("run", path, "--dump-state", "state.json")
    m = bitcube.Machine()
    result = m.run(path, trace=True)
    assert result.ok and result.end == report["result"] == "completed"
    assert (result.steps, result.bundles) == (report["steps"], report["bundles"])
    assert result.failed == result.not_reached == 0
    assert all(check.holds for check in result.checks) and len(result.checks) >= 1
    assert m.save() == (program.directory / "state.json").read_text()
    assert [json.loads(line)["event"] for line in result.trace].count("step") == result.steps


def test_a_product_step_by_step(machine):
    for line in PRODUCT[:-1]:
        outcome = machine.step(line)
        assert outcome.fault is None and not outcome.completed
        assert machine.bundle_open
    assert machine.tile(0, "U#1") is None
    outcome = machine.step(bitcube.assemble(PRODUCT[-1])[0])
    assert outcome.completed and outcome.tiles == ((0, "U#1", "D"), ) and outcome.flags == bitcube.Flags(0)
    d = machine.tile(0, "u#1")
    assert (d.type, d.layout, d.capacity, d.text) == ("FP32", "CUBE_M16", 128, "FP32 CUBE_M16 2 x 2")
    same(d.data, (A @ B).astype(np.float32))
    assert d.defined.all() and d.defined.shape == (2, 2) and d.defined.dtype == bool
    same(d.data, bitcube.matmul(A, B).d)
    assert not machine.bundle_open and machine.pc == 4 * len(PRODUCT)


def test_programs_in_memory(machine):
    text = "\n".join(PRODUCT)
    machine.write(0x1000, bitcube.assemble_bytes(text))
    machine.pc = 0x1000
    while not machine.step().completed:
        pass
    assert machine.tile(0, "U#1").data.tolist() == [[22, 28], [49, 64]]
    assert machine.read(0x1000, 4 * len(PRODUCT)) == bitcube.assemble_bytes(text)
    assert [line[2] for line in bitcube.Program(text).lines] == bitcube.disassemble(bitcube.assemble_bytes(text))


def test_tiles_of_every_kind():
    m = bitcube.Machine()
    for i, (data, type_, layout) in enumerate([
        (np.arange(-8, 8, dtype=np.int8).reshape(2, 8), "s4", "CUBE_M16"),
        (np.arange(16, dtype=np.uint8).reshape(2, 8), "hif4", "CUBE_N8"),
        (np.arange(6, dtype=np.uint16).reshape(2, 3), "bf16", "RowMajor"),
        (np.arange(6, dtype=np.float64).reshape(3, 2), None, "ColumnMajor"),
        (np.arange(-3, 3, dtype=np.int32).reshape(1, 6), None, "rowmajor"),
    ]):
        m.set_tile(3, f"T#{i + 1}", data, layout, type_)
        tile = m.tile(3, f"T#{i + 1}")
        same(tile.data, data)
        assert m.tile(2, f"T#{i + 1}") is None
    m.set_tile(0, "M#2", np.ones((2, 3), np.float32), "RowMajor", columns=8, capacity=1024)
    assert m.tile(0, "M#2").capacity == 1024 == m.local_pool(0)
    m.set_shared("S5", A, "CUBE_M16")
    same(m.shared("S5").data, A)
    assert m.shared_ready("S5") and not m.shared_ready("S6") and m.shared("S6") is None
    assert m.shared_pool() == m.shared("S5").capacity
    m.set_pending("S5")
    assert not m.shared_ready("S5")


def test_faults_are_raised_or_returned(machine):
    before = machine.save()
    with pytest.raises(bitcube.Fault) as caught:
        machine.step(0xFFFFFFFF)
    fault = caught.value
    assert (fault.fault_class, fault.rule) == ("IllegalInstruction", "A1") and str(fault).startswith("Illegal")
    outcome = machine.step(0xFFFFFFFF, faults="return")
    assert isinstance(outcome.fault, bitcube.Fault) and str(outcome.fault) == str(fault)
    assert machine.save() == before
    with pytest.raises(bitcube.Fault) as caught:
        bitcube.Machine().step()
    assert caught.value.fault_class == "InstructionPage" and caught.value.rule == "A17"
    # K is 3, but the program says 4.
    lines = [line.replace("3, ->LB2", "4, ->LB2") for line in PRODUCT]
    other = machine.copy()
    with pytest.raises(bitcube.Fault) as caught:
        machine.run("\n".join(lines))
    assert caught.value.fault_class == "TileLegality" and caught.value.pe == 0
    result = other.run("\n".join(lines), faults="return")
    assert result.end == "fault" and not result.ok and result.line == 7


def test_faults_are_those_of_the_program(program, tmp_path):
    path = tmp_path / "fault.s"
    path.write_text((PROGRAMS / "first.s").read_text().replace("zero, 3, ->LB2", "zero, 4, ->LB2"))
    done = subprocess.run([program.path, "run", path, "--json"], capture_output=True, text=True, check=False)
    want = json.loads(done.stdout)["fault"]
    fault = bitcube.Machine().run(path, faults="return").fault
    assert (fault.fault_class, fault.rule, fault.operand, fault.pe, fault.found, fault.legal) == \
        tuple(want[k] for k in ("class", "rule", "operand", "pe", "found", "legal"))


def test_expectations_that_do_not_hold_are_results():
    text = (PROGRAMS / "first.s").read_text()
    result = bitcube.Machine().run(text.replace("22 28 49 64", "22 28 49 65"))
    assert not result.ok and result.failed == 1 and result.end == "completed"
    assert not result.checks[0].holds and result.checks[0].message and result.checks[0].line == 14
    assert bitcube.Machine().run(text).ok


def test_waiting_and_options():
    text = "\n".join(["BSTART.TMATMUL FP16"] + PRODUCT[1:])
    absolute = bitcube.Machine(name_policy="absolute")
    absolute.set_tile(0, "T#1", A, "CUBE_M16")
    absolute.set_tile(0, "T#2", B, "CUBE_N8")
    absolute.set_tile(0, "U#1", B, "CUBE_N8")
    absolute.run(text)
    same(absolute.tile(0, "U#1").data, B)  # a physical register stays; the lowest free one takes D
    assert absolute.tile(0, "U#2").data[0, 0] == 22
    for accumulate in bitcube.choices()["accumulate"]:
        m = bitcube.Machine(accumulate=accumulate)
        m.set_tile(0, "T#1", A, "CUBE_M16")
        m.set_tile(0, "T#2", B, "CUBE_N8")
        m.run(text)
        same(m.tile(0, "U#1").data, bitcube.matmul(A, B, accumulate=accumulate).d)
    for wrong in ({"name_policy": "new"}, {"accumulate": "best"}, {"profile": "x"}, {"scalar_pe": 4}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            bitcube.Machine(**wrong)


def test_registers_and_memory():
    m = bitcube.Machine()
    m.set_gpr(2, "a0", 2**64 - 1)
    assert m.gpr(2, "A0") == 2**64 - 1 and m.gpr(1, "a0") == 0
    m.write(2**64 - 2, b"\x01\x02\x03")  # addresses wrap
    assert m.read(2**64 - 2, 3) == b"\x01\x02\x03" and m.read(0, 1) == b"\x03"
    m.write(0x5000, np.array([[1, 2], [3, 4]], np.uint16).T)
    assert np.frombuffer(m.read(0x5000, 8), np.uint16).tolist() == [1, 3, 2, 4]
    m.map(0x10000, 4097)
    assert m.read(0x11FFF, 1) == b"\0"
    for call, error in ((lambda: m.read(0x12000, 1), "address 0x12000 is not mapped"),
                        (lambda: m.read(0x11FFF, 2), "address 0x12000 is not mapped"),
                        (lambda: m.map(0, 2**60), "more than 2"), (lambda: m.set_gpr(0, "zero", 1), "zero is always"),
                        (lambda: m.set_gpr(0, "a0", -1), "value: -1"),
                        (lambda: m.gpr(0, "b0"), "name: 'b0' is no register"),
                        (lambda: m.gpr(4, "a0"), "there is no PE4"), (lambda: m.tile(-1, "T#1"), "pe: -1"),
                        (lambda: m.tile(0, "T#17"), "'T#17' is no Tile"), (lambda: m.shared("S64"), "no Shared Tile"),
                        (lambda: m.set_tile(0, "T#1", A, "CUBE"), "layout: no such thing as 'CUBE'"),
                        (lambda: m.set_tile(0, "T#1", A[0], "CUBE_M16"), "rows and columns"),
                        (lambda: m.set_tile(0, "T#1", A, "CUBE_M16", columns=4), "columns: is for ordinary"),
                        (lambda: m.set_tile(0, "T#1", np.ones((17, 2), np.float16), "CUBE_M16"), "."),
                        (lambda: m.set_tile(0, "T#1", np.ones((2, 70000), np.float16), "CUBE_M16"), "."),
                        (lambda: m.step("BSTOP; BSTOP"), "has 2 instructions"), (lambda: m.step("HALT"), "1:1"),
                        (lambda: m.step(0, faults="ignore"), "neither 'raise' nor 'return'"),
                        (lambda: m.run("HALT"), "program:1:1: "), (lambda: m.run(Path("no.s")), "no.s"),
                        (lambda: m.restore("{}"), "state"), (lambda: bitcube.assemble("\nX"), "2:1: ")):
        with pytest.raises(ValueError, match=error):
            call()
    with pytest.raises(TypeError):
        m.write(0, "text")
    with pytest.raises(TypeError):
        m.step(1.5)


def test_copies_and_states(machine):
    other = machine.copy()
    assert other == machine and other is not machine
    other.run("\n".join(PRODUCT))
    assert other != machine and machine.tile(0, "U#1") is None
    fresh = bitcube.Machine()
    fresh.restore(other.save())
    assert fresh == other and fresh != 5
    same(fresh.tile(0, "U#1").data, other.tile(0, "U#1").data)
    assert repr(bitcube.Machine()) == "<bitcube.Machine at PC 0x0, flags ->"


def test_undefined_elements_are_told():
    m = bitcube.Machine()
    m.run(".tile 0 T#1 CUBE_M16 FP16 2 3 = 1 2 3 4 5 6\n.undefine 0 T#1 1 2\n")
    tile = m.tile(0, "T#1")
    assert tile.defined.tolist() == [[True, True, True], [True, True, False]]


def test_programs():
    p = bitcube.Program.load(PROGRAMS / "first.s")
    assert p.expectations == 1 and p.origin == 0 and p.name.endswith("first.s") and len(p.lines) == 7
    assert p.lines[-1][2] == "BSTOP" and len(p.bytes) == 28
    m = bitcube.Machine()
    assert m.run(p).ok and bitcube.Machine().run(p).ok
