"""The report for people: what stands where, on every screen."""

from __future__ import annotations

import re

import msgspec
import pytest
from rich.cells import cell_len

from amdcheck.model.finding import (
    HOST,
    Finding,
    Metric,
    Remedy,
    Step,
    Subject,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.model.report import Lost, Report
from amdcheck.report.console import render
from amdcheck.report.view import Detail, View
from tests.report import samples
from tests.report.samples import gpu, narrow_link

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def shown_on(report: Report, **view: object) -> list[str]:
    return render(report, msgspec.convert(view, View)).splitlines()


def test_fault_on_three_gpus_reads_as_one_entry_with_its_evidence_and_commands() -> None:
    lines = shown_on(samples.narrow_links(), width=80)
    start = lines.index("✗ FAIL pci.link-width/degraded  PCIe link width")
    assert lines[start + 1 : start + 14] == [
        "  3 GPUs: 0000:01:00.0, 0000:02:00.0, 0000:03:00.0",
        "  The link runs at x8 although the card and the slot both offer x16.",
        "    found x8, expected x16",
        "    /sys/bus/pci/devices/<gpu>/current_link_width = 8",
        "    /sys/bus/pci/devices/<gpu>/max_link_width = 16",
        "  To do: reset (owner: node)",
        "    1. Move the work away and take the node out of service",
        "    2. Look at the link's errors",
        "       $ sudo lspci -vvs 0000:01:00.0",
        "       $ sudo lspci -vvs 0000:02:00.0",
        "       $ sudo lspci -vvs 0000:03:00.0",
        "    3. Reseat the card or the riser (needs a reboot)",
        "    see PCI Express Base Specification, Link Status Register",
    ]


def test_worst_groups_come_first_and_last_the_verdict_with_what_to_do_first() -> None:
    lines = shown_on(samples.narrow_links(), width=80)
    groups = [line for line in lines if line in {"pci", "kernel", "numa", "cpu", "gpu"}]
    assert groups == ["pci", "kernel", "numa", "cpu"]  # fail, unknown, warn, manual; gpu has passes alone
    assert "✓ gpu      driver-loaded" in lines
    assert lines[-5:] == [
        "✗ Not ready: PCIe link width on 3 GPUs, and 1 warning. 1 check needs root: sudo",
        "  amdcheck all",
        "  Start with: Move the work away and take the node out of service",
        "  Step 2: Look at the link's errors",
        "    $ sudo lspci -vvs 0000:01:00.0",
    ]


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (slice(1, 3), ["  Start with: Look at the link's errors", "    $ sudo lspci -vvs 0000:01:00.0"]),
        (slice(2, 3), ["  Start with: Reseat the card or the riser (needs a reboot)"]),
    ],
)
def test_a_first_step_with_a_command_is_told_alone_and_one_without_any_too(kept: slice, told: list[str]) -> None:
    finding = narrow_link(gpu(1))
    assert finding.remedy is not None
    remedy = msgspec.structs.replace(finding.remedy, steps=finding.remedy.steps[kept])
    finding = msgspec.structs.replace(finding, remedy=remedy)
    lost = (Lost(check="kernel.gpu-errors", needs="root", source="/dev/kmsg"),)
    lines = shown_on(samples.report(finding, verdict="not-ready", headline="No.", reason=finding.id, lost=lost))
    assert lines[lines.index("✗ No.") + 1 :] == told


def test_there_is_one_headline() -> None:
    text = render(samples.ready(), View())
    assert text.count("Ready: 8 × Instinct MI300X.") == 1


def test_machine_is_described_above_the_findings() -> None:
    assert shown_on(samples.ready(), width=100)[:5] == [
        "✓ READY  gpu-node-07 · amdcheck 0.1.0 · level standard",
        "CPU     2 × AMD EPYC 9654 96-Core Processor, 192 cores, 384 threads, 2 NUMA nodes, 1.5 TiB",
        "GPU     8 × Instinct MI300X, gfx942, 192 GiB, SPX/NPS1",
        "Stack   amdgpu 6.14.14 (dkms), ROCm 6.4.1 in /opt/rocm-6.4.1, MIOpen 3.4.0",
        "System  Ubuntu 22.04.5 LTS, 5.15.0-130-generic",
    ]


def test_machine_of_which_nothing_is_known_is_described_without_inventing() -> None:
    lines = shown_on(samples.no_amd(), width=80)
    assert lines[1:4] == ["CPU     not determined", "GPU     no AMD GPU seen", "Stack   amdgpu not determined"]
    assert "None" not in "\n".join(lines)


def test_passes_are_one_line_a_group_with_their_number_of_subjects() -> None:
    lines = shown_on(samples.ready(), width=80)
    assert [line for line in lines if line.startswith("✓")][1:5] == [
        "✓ cpu      vendor, isa",
        "✓ numa     layout",
        "✓ gpu      driver-loaded",
        "✓ pci      link-width (8 GPUs)",
    ]
    assert not any("/proc/cpuinfo" in line for line in lines)


def test_verbose_shows_the_evidence_of_passes_and_the_reason_of_skips() -> None:
    lines = shown_on(samples.ready(), width=80, detail="verbose")
    assert "    /proc/cpuinfo = AuthenticAMD  (every CPU)" in lines
    assert "    /sys/bus/pci/devices/<gpu>/current_link_width = 16" in lines
    assert "  MIOpen is not installed" in lines


def test_verbose_shows_the_metrics_that_pages_and_remedies_name() -> None:
    lines = shown_on(samples.narrow_links(), width=80, detail="verbose")
    at = lines.index("    /sys/bus/pci/devices/<gpu>/max_link_width = 16")
    assert lines[at + 1 : at + 3] == ["    metric link.width = 8 lanes", "  To do: reset (owner: node)"]
    assert not any("metric" in line for line in shown_on(samples.narrow_links(), width=80))


def test_metrics_of_subjects_that_are_told_in_one_are_told_of_each() -> None:
    def measured(cpu: str, *metrics: tuple[str, float, str]) -> Finding:
        told = tuple(Metric(name=name, value=value, unit=unit, volatile=True) for name, value, unit in metrics)
        subject = Subject(kind="cpu", id=cpu)
        return passed("selftest.cpu.neighbour", subject, "alone", shown("selftest cpu.cores", "right"), metrics=told)

    found = (measured("0", ("clock", 3.412, "GHz"), ("share", 0.5, "1")), measured("4", ("clock", 3.5, "GHz")))
    lines = shown_on(samples.report(*found), width=80, detail="verbose")
    at = lines.index("  2 CPUs: 0, 4")
    assert lines[at + 3 : at + 5] == ["    metric clock = 3.412, 3.5 GHz", "    metric share = 0.5"]


def test_quiet_is_the_headline_alone() -> None:
    assert shown_on(samples.ready(), detail="quiet") == ["✓ Ready: 8 × Instinct MI300X."]


def test_what_was_not_read_is_said_with_its_reason_never_as_a_value() -> None:
    lines = shown_on(samples.narrow_links(), width=80)
    assert "    /dev/kmsg  not read: denied: Operation not permitted" in lines


def test_reader_without_root_learns_what_root_would_add() -> None:
    lines = shown_on(samples.narrow_links(), width=80)
    at = lines.index("Not seen without root: kernel.gpu-errors")
    assert lines[at + 1] == "  $ sudo amdcheck all"


def test_replay_does_not_propose_to_run_as_root_here() -> None:
    report = samples.narrow_links()
    report = msgspec.structs.replace(report, run=msgspec.structs.replace(report.run, source="capture"))
    lines = shown_on(report, width=100)
    assert lines[0] == "✗ NOT READY  gpu-node-07 · amdcheck 0.1.0 · level standard, read from a capture"
    assert "Not recorded without root: kernel.gpu-errors" in lines
    assert "  $ sudo amdcheck all" not in lines


def test_root_needs_no_sudo() -> None:
    report = samples.narrow_links()
    report = msgspec.structs.replace(report, run=msgspec.structs.replace(report.run, privileged=True))
    assert "       $ lspci -vvs 0000:01:00.0" in shown_on(report, width=80)


def test_waived_finding_says_why_and_until_when_and_asks_for_nothing() -> None:
    lines = shown_on(samples.narrow_links(), width=80)
    start = lines.index("~ WAIVED pci.acs/redirect  ACS redirection")
    assert lines[start + 3] == "  waived until 2027-03-31: XGMI only host"
    assert "Turn ACS off in the BIOS" not in "\n".join(lines)


def test_deadline_that_cut_the_run_is_said() -> None:
    lines = shown_on(samples.report(*samples.passes(), deadline_hit=True), width=80)
    assert "The deadline ended the run before every check had its turn." in lines


def test_skipped_checks_are_counted_and_told_by_their_reason() -> None:
    lines = shown_on(samples.ready(), width=80)
    at = lines.index("Skipped 1:")
    assert lines[at + 1] == "  MIOpen is not installed: miopen.database"


def test_skips_are_told_by_reason_that_of_most_first_and_the_reasons_are_bounded() -> None:
    odd = [skipped("cpu.isa", Subject(kind="cpu", id=f"isa{i}"), f"no isa{i} here.") for i in range(20)]
    busy = [skipped(f"selftest.cpu.{name}", HOST, "in use", outcome="busy") for name in ("clock", "triad")]
    lines = shown_on(samples.report(*odd, *busy), width=80)
    at = lines.index("Skipped 22:")
    assert lines[at + 1] == "  in use: selftest.cpu.clock, selftest.cpu.triad"
    assert lines[at + 2] == "  no isa0 here: cpu.isa (isa0)"
    assert lines[at + 13] == "  and 9 more, all with --verbose"


def test_skips_for_reasons_that_differ_in_their_last_word_are_told_in_one_breath() -> None:
    skips = [
        skipped("selftest.cpu.isa", Subject(kind="cpu", id=id), f"the processor has no {name}")
        for id, name in (("avx512f", "AVX-512F"), ("avx_vnni", "AVX-VNNI"))
    ]
    lines = shown_on(samples.report(*skips, skipped("cpu.isa", HOST, "absent")), width=100)
    at = lines.index("Skipped 3:")
    assert lines[at + 1 : at + 3] == [
        "  the processor has no AVX-512F, AVX-VNNI: selftest.cpu.isa (avx512f, avx_vnni)",
        "  absent: cpu.isa",
    ]


@pytest.mark.parametrize(
    ("headline", "first"),
    [
        ("3 checks alone: READY: 3 findings passed", "✓ 3 checks alone: READY  gpu-node-07"),
        ("CPU host, no AMD GPU: READY: 9 findings passed", "✓ CPU host, no AMD GPU: READY  gpu-node-07"),
        ("READY: 9 findings passed", "✓ READY  gpu-node-07"),
    ],
)
def test_the_first_line_says_what_the_verdict_speaks_of_as_the_last_one_does(headline: str, first: str) -> None:
    lines = shown_on(samples.report(*samples.passes(), headline=headline))
    assert lines[0] == f"{first} · amdcheck 0.1.0 · level standard"
    assert lines[-1] == f"✓ {headline}"


def odd_node(number: int, value: str) -> Finding:
    fix = Remedy(action="monitor", owner="node", steps=(), reference=None)
    subject = Subject(kind="numa", id=f"node{number}")
    return warned("numa.layout/odd", subject, "It is odd.", shown("/sys/devices/system/node", value), remedy=fix)


def test_evidence_fills_its_first_line_and_keeps_a_number_with_its_unit() -> None:
    value = "pages of two sizes, where one was asked for: 4 KiB and 2048 KiB"
    lines = shown_on(samples.report(odd_node(1, value)), width=80)
    at = lines.index("  NUMA node 1")
    assert lines[at + 2 : at + 4] == [
        "    /sys/devices/system/node = pages of two sizes, where one was asked for:",
        "      4 KiB and 2048 KiB",
    ]
    lines = shown_on(samples.report(odd_node(1, "x" * 5 + " y" * 24)), width=84)
    assert max(len(line) for line in lines if "y y" in line) == 84
    lines = shown_on(samples.report(odd_node(0, "1"), odd_node(1, "1")), width=80)
    assert "  2 NUMA nodes: 0, 1" in lines


def no_kernels(check: str, source: str, step: str) -> Finding:
    steps = (Step(text=step, argv=None, root=False, reboot=False),)
    fix = Remedy(action="configure", owner="setup", steps=steps, reference=None)
    told = shown(source, "none")
    return undetermined(check, HOST, "There are no native kernels.", told, outcome="absent", remedy=fix)


def test_one_cause_that_several_checks_tell_is_one_block_with_their_ids() -> None:
    clock = no_kernels("selftest.cpu.clock", "selftest cpu.cores", "Install a compiler")
    triad = no_kernels("selftest.cpu.triad", "selftest cpu.memory", "Install a C compiler")
    lines = shown_on(samples.report(clock, triad), width=80)
    at = lines.index("selftest")
    assert lines[at + 1 : at + 7] == [
        "? UNKNOWN selftest.cpu.clock/absent, selftest.cpu.triad/absent",
        "  There are no native kernels.",
        "    selftest cpu.cores = none",
        "  To do: configure (owner: setup)",
        "    Install a compiler",
        "",
    ]
    verbose = shown_on(samples.report(clock, triad), width=80, detail="verbose")
    assert "? UNKNOWN selftest.cpu.clock/absent" in verbose
    assert "? UNKNOWN selftest.cpu.triad/absent" in verbose


def test_tally_counts_every_finding_once() -> None:
    report = samples.narrow_links()
    tally = next(line for line in shown_on(report, width=100) if line.startswith("3 fail"))
    assert tally == "3 fail, 1 unknown, 1 warn, 1 manual, 1 waived, 9 pass, 1 skip in 4.2 s"
    assert sum(int(n) for n in re.findall(r"(\d+) [a-z]+[,]?", tally.partition(" in ")[0])) == len(report.findings)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_only_commands_are_wider_than_the_screen(name: str, width: int) -> None:
    for line in shown_on(samples.SAMPLES[name](), width=width):
        defused = line.count(": :") + line.count("# #")  # a line made inert grows by the blanks put into it
        assert cell_len(line) <= width + defused or line.lstrip().startswith("$ "), line


@pytest.mark.parametrize("name", samples.SAMPLES)
@pytest.mark.parametrize("detail", ["quiet", "normal", "verbose"])
def test_without_colour_there_is_no_escape_and_no_trailing_blank(name: str, detail: Detail) -> None:
    text = render(samples.SAMPLES[name](), View(width=80, detail=detail))
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert text.endswith("\n")
    assert "\n\n\n" not in text


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_reader_of_ascii_gets_ascii_alone(name: str) -> None:
    text = render(samples.SAMPLES[name](), View(width=80, ascii=True, detail="verbose"))
    assert text.isascii()


def test_ascii_keeps_the_words_that_carry_the_status() -> None:
    lines = shown_on(samples.narrow_links(), width=80, ascii=True)
    assert "x FAIL pci.link-width/degraded  PCIe link width" in lines
    assert "+ gpu      driver-loaded" in lines
    assert lines[1].startswith("CPU     2 x AMD EPYC 9654")


def test_colour_changes_nothing_but_colour() -> None:
    plain = render(samples.narrow_links(), View(width=80))
    coloured = render(samples.narrow_links(), View(width=80, colour=True))
    assert coloured != plain
    assert ESCAPE.sub("", coloured) == plain


@pytest.mark.parametrize("colour", [True, False])
def test_hostile_strings_are_inert(colour: bool) -> None:
    text = ESCAPE.sub("", render(samples.hostile(), View(width=60, colour=colour, detail="verbose")))
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "##vso[" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]c[/bold]" in text  # shown, not obeyed
    assert "<script>x</script>" in text


def test_hostile_word_in_a_command_stays_one_quoted_word() -> None:
    (command,) = [line for line in shown_on(samples.hostile(), width=60) if line.lstrip().startswith("$ ")]
    assert "'" in command
    assert command.count("$(reboot)") == 1
    assert command.index("'") < command.index("$(reboot)")


def test_long_value_is_cut_and_verbose_shows_it_whole() -> None:
    long = failed(
        "cpu.isa/missing",
        Subject(kind="cpu", id="0"),
        "m",
        shown("/proc/cpuinfo", "f" * 1000),
        remedy=narrow_link(gpu(1)).remedy,  # type: ignore[arg-type]
    )
    assert "(700 more characters)" in " ".join(shown_on(samples.report(long)))
    assert "more characters" not in " ".join(shown_on(samples.report(long), detail="verbose"))


def test_sixty_four_subjects_are_counted_and_some_named() -> None:
    lines = shown_on(samples.report(*(narrow_link(gpu(i)) for i in range(64))), width=200)
    subjects = next(line for line in lines if "64 GPUs" in line)
    assert subjects.endswith("0000:07:00.0 and 56 more")
    assert sum(line.lstrip().startswith("$ lspci") for line in lines) == 8
    assert "       and 56 more, all with --verbose" in lines


def test_skip_alone_makes_no_group_and_names_its_subject() -> None:
    report = samples.report(skipped("miopen.database", gpu(1), "MIOpen is not installed"))
    assert "miopen" not in shown_on(report)
    assert "  MIOpen is not installed: miopen.database (0000:01:00.0)" in shown_on(report)


def test_same_check_skipped_for_many_subjects_counts_each_as_the_tally_does() -> None:
    skips = [skipped("selftest.cpu.isa", Subject(kind="cpu", id=f"isa{i}"), "not offered") for i in range(10)]
    lines = shown_on(samples.report(*skips), width=200)
    assert "Skipped 10:" in lines
    assert "  not offered: selftest.cpu.isa (isa0, isa1, isa2, isa3, isa4, isa5, isa6, isa7 and 2 more)" in lines
    assert lines[-2] == "10 skip in 4.2 s"


@pytest.mark.parametrize(
    ("check", "id", "named"),
    [
        ("selftest.cpu.isa", "avx512_vnni", "instruction set avx512_vnni"),
        ("numa.layout", "socket 0", "CPU socket 0"),
        ("selftest.cpu.core", "17", "CPU 17"),
    ],
)
def test_a_cpu_a_socket_and_an_instruction_set_are_called_what_they_are(check: str, id: str, named: str) -> None:
    fix = Remedy(action="monitor", owner="node", steps=(), reference=None)
    finding = warned(f"{check}/odd", Subject(kind="cpu", id=id), "It is odd.", shown("/proc/cpuinfo", "x"), remedy=fix)
    assert f"  {named}" in shown_on(samples.report(finding))


def test_what_the_verdict_names_stands_before_others_of_its_rank() -> None:
    """Groups and findings are in order of id; the verdict names the cause, whatever it is called."""
    report = samples.report(narrow_link(gpu(1)), missing())
    report = msgspec.structs.replace(
        report, summary=msgspec.structs.replace(report.summary, reason=f"amdcheck: not-ready: {missing().id}: gone")
    )
    lines = shown_on(report, width=80)
    assert [line for line in lines if line.startswith("✗ FAIL")] == [
        "✗ FAIL rocm.version/other-release",
        "✗ FAIL pci.link-width/degraded  PCIe link width",
    ]


def missing() -> Finding:
    remedy = narrow_link(gpu(1)).remedy
    assert remedy is not None
    return failed("rocm.version/other-release", Subject(kind="host", id="host"), "m", shown("/x", "1"), remedy=remedy)


def test_colours_can_be_read_on_white() -> None:
    """Bold yellow and bold green are bright on many terminals, and hardly to be seen on white."""
    for name in ("ready", "narrow_links"):
        text = render(samples.SAMPLES[name](), View(colour=True))
        assert re.search(r"\x1b\[(1;3[23]|9[23])m", text) is None
