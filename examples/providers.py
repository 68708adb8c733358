"""Ask judges of several providers about the same edit: the named ones, or all whose key or address is set.

    ANTHROPIC_API_KEY=… OPENROUTER_API_KEY=… python examples/providers.py
    python examples/providers.py ollama:qwen3-vl:8b openrouter:qwen/qwen3-vl-30b-a3b-instruct@novita

Only the spec differs. Keys come from the environment; anthropic, bedrock and ollama need an extra, such as
pip install '.[anthropic]'. A provider that cannot be asked is reported in a sentence, and the others go on.
"""

import os
import sys

from editloupe import Edit, Judge, UserError, Verdict
from editloupe.demo import demo_manifest

PROVIDERS = {
    "openai:gpt-5.1": "OPENAI_API_KEY",
    "google_genai:gemini-3-pro": "GOOGLE_API_KEY",
    "anthropic:claude-sonnet-5": "ANTHROPIC_API_KEY",
    "azure_openai:my-deployment": "AZURE_OPENAI_API_KEY",  # and AZURE_OPENAI_ENDPOINT
    "bedrock:anthropic.claude-sonnet-5": "AWS_BEARER_TOKEN_BEDROCK",  # or AWS's other credentials; and AWS_REGION
    "openrouter:qwen/qwen3-vl-30b-a3b-instruct@novita": "OPENROUTER_API_KEY",  # after the @: the host
    "ollama:qwen3-vl:8b": "OLLAMA_HOST",
}
"""A judge of each provider, and the environment variable that it needs."""


def ask(spec: str, edit: Edit) -> str:
    """Return the verdict of one judge in a line."""
    try:
        with Judge(spec, protocol="dlebench", mode="plain", criteria=["instruction_following"]) as judge:
            (outcome,) = judge(edit).verdicts
    except UserError as error:  # no key, an extra that is not installed, an unknown model
        return f"not asked: {error}"
    if isinstance(outcome, Verdict):
        return f"{outcome.label}, {outcome.usage.input_tokens} + {outcome.usage.output_tokens} tokens"
    return f"unjudged ({outcome.reason}), {outcome.detail}"


def main() -> None:
    """Ask every provider that is named or set up."""
    pictures = demo_manifest().parent / "pictures"
    edit = Edit(
        source=pictures / "chelsea.jpg",
        edited=pictures / "cat-eye-edited.jpg",
        instruction="Change the color of the cat's eye on the left side of the picture from green to blue.",
    )
    chosen = sys.argv[1:] or [spec for spec, variable in PROVIDERS.items() if os.environ.get(variable)]
    if not chosen:
        print(f"set one of {', '.join(PROVIDERS.values())}, or name a judge")
    for spec in chosen:
        print(f"{spec}: {ask(spec, edit)}")


if __name__ == "__main__":
    main()
