"""Compiles the Triton kernels for a GPU that need not be there; prints what each one spills and shares.

python tests/losses/triton_compiled.py sm_90
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from happier.losses import triton_kernel as kernels

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
INTEGERS = {"levels": "*i32", "counts": "*i32", "items": "i32"}
NUMBERS = ("coldness", "sharpness", "rho", "delta", "start", "offset", "gamma", "nu", "mu")
# The three objectives with the step, of which the first has the most to do; H-AP with a sigmoid.
CASES = [{"KIND": kind, "STEP": True, "HRANK": True, "CUTS": 5 * (kind == 2)} for kind in range(3)]
CASES += [{"KIND": 0, "STEP": False, "HRANK": False, "CUTS": 0}]


def compiled(kernel, case, target):
    chosen = {**case, "BLOCK_K": kernels.BLOCK_POSITIVES, "BLOCK_J": kernels.BLOCK_ITEMS}
    chosen = {name: value for name, value in chosen.items() if name in kernel.arg_names}
    types = {name: "fp32" if name in NUMBERS else "*fp32" for name in kernel.arg_names}
    signature = {**types, **{name: kind for name, kind in INTEGERS.items() if name in types}}
    signature.update(dict.fromkeys(chosen, "constexpr"))
    source = ASTSource(kernel, signature, constexprs=chosen)
    return triton.compile(source, target=target, options={"num_warps": kernels.WARPS})


def spilt(found, target):
    if target.backend == "hip":
        # Scalars move to vector lanes, not to memory; vectors would go to scratch memory.
        return int(re.search(r"ScratchSize: (\d+)", found.asm["amdgcn"])[1])
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    name = re.search(r"\.target (\w+)", found.asm["ptx"])[1]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(found.asm["ptx"])
        command = [assembler, "-v", f"--gpu-name={name}", source, "-o", Path(folder) / "kernel.cubin"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    print(re.findall(r"Used \d+ registers", said), file=sys.stderr)
    return sum(map(int, re.findall(r"(\d+) bytes spill", said)))


target = TARGETS[sys.argv[1]]
for case in CASES:
    for kernel in (kernels._rank_kernel, kernels._gradient_kernel):
        found = compiled(kernel, case, target)
        print(kernel.__name__, case["KIND"], "spilt", spilt(found, target), "shared", found.metadata.shared)
