"""EdiVal-Agent's pipeline over folders: decompose pictures, make chains of instructions, evaluate results, report."""
