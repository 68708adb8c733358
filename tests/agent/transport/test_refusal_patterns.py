"""The subject of a refusal is recognised from the messages that servers send."""

from __future__ import annotations

import pytest

from editloupe.agent.transport.errors import classify_refusal, find_parameter, find_wait

OLDER_LIMIT = (
    "Rate limit reached for default-gpt-3.5-turbo in organization org-1 on requests per min (RPM): Limit 3, Used 3, Requested 1. "
    "Please try again in 20s. Visit https://platform.openai.com/account/billing to add a payment method."
)
GEMINI_LIMIT = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: "
    "https://ai.google.dev/gemini-api/docs/rate-limits. * Quota exceeded for metric: requests, limit: 10"
)
LITELLM_QUOTA = (
    "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan"
)
SENTENCES = [
    (429, OLDER_LIMIT, "other"),
    (429, OLDER_LIMIT.partition(" Please")[0] + " Add a payment method under /account/billing.", "other"),
    (429, f"{GEMINI_LIMIT} Please retry in 12.5s.", "other"),
    (429, "You exceeded your current quota: GenerateRequestsPerMinutePerProject", "other"),
    (429, "Tokens per minute: check your billing", "other"),
    (429, GEMINI_LIMIT, "budget"),
    (429, LITELLM_QUOTA, "budget"),
    (429, "insufficient_quota: You exceeded your current quota; try again in 20s; rate limit", "budget"),
    (429, "Budget has been exceeded! Current cost: 2, Max budget: 1. Please try again in 20s, rate limit", "budget"),
    (429, "Billing hard limit has been reached", "budget"),
    (429, "Your account is not active, please check your billing details on our website.", "budget"),
    (400, "<400> InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content.", "content"),
    (400, "data_inspection_failed: Output data may contain something", "content"),
    (400, "系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语", "content"),
    (400, "内容违规", "content"),
    (400, "InputImageSensitiveContentDetected: the input image may contain sensitive information", "content"),
    (400, "Content Exists Risk", "content"),
    (400, "The request was rejected because it was considered high risk", "content"),
    (400, "Header names are case-sensitive here", "other"),
    (429, "您的账户已欠费，请充值后重试", "budget"),
    (400, "Budget has been exceeded! Current cost: 0.002, Max budget: 0.001", "budget"),
    (422, "ExceededBudget: User=u over budget. Spend=1.2, Budget=1.0", "budget"),
    (429, "Budget has been exceeded! Current cost: 0.002, Max budget: 0.001", "budget"),
    (429, "ExceededTokenBudget: Key crossed budget", "budget"),
    (400, "Your credit balance is too low to access the Anthropic API.", "budget"),
    (402, "This request requires more credits, or fewer max_tokens.", "budget"),
    (429, "insufficient_quota: You exceeded your current quota, please check your plan and billing details.", "budget"),
    (400, "/chat/completions: Invalid model name passed in model=gpt-9. Call `/v1/models` for your key.", "model"),
    (400, "openai/gpt-99 is not a valid model ID", "model"),
    (404, "The model `x` does not exist or you do not have access to it.", "model"),
    (400, "model 'llava' not found, try pulling it first", "model"),
    (400, "Authentication Error, Invalid proxy server token passed.", "key"),
    (400, "API key not valid. Please pass a valid API key.", "key"),
    (401, "no", "key"),
    (403, "Requests to this API method are blocked.", "key"),
    (403, "Your input was flagged by moderation", "content"),
    (400, "Your input image may contain content that is not allowed.", "content"),
    (400, "The response was filtered due to the prompt triggering Azure's content management policy.", "content"),
    (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.", "content"),
    (400, "image too large", "content"),
    (400, "You uploaded an unsupported image. Please make sure your image has one of the following formats", "content"),
    (413, "Request Entity Too Large", "content"),
    (400, "Invalid content type. image_url is only supported by certain models.", "pictures"),
    (404, "No endpoints found that support image input", "pictures"),
    (400, "Something about the moon", "other"),
    (400, "User location is not supported for the API use.", "other"),
]


@pytest.mark.parametrize(("status", "said", "about"), SENTENCES)
def test_the_words_decide_what_a_refusal_is_about(status: int, said: str, about: str) -> None:
    assert classify_refusal(status, said) == about


def test_a_quota_that_comes_with_a_time_to_wait_is_a_limit_by_the_minute() -> None:
    assert classify_refusal(429, "You exceeded your current quota, see billing details", waits=True) == "other"
    assert classify_refusal(429, "Budget has been exceeded!", waits=True) == "budget"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("Please try again in 20s.", 20),
        ("Please try again in 1m30s. Contact us", 90),
        ("Please try again in 7m12.5s.", 432.5),
        ("Please try again in 250ms.", 0.25),
        ("Please retry in 12.5s.", 12.5),
        ("Please retry after 26 seconds.", 26),
        ("Try again in 2 minutes", 120),
        ("Please try again in 1h2m.", 3720),
        ("Please try again in 2 steps", None),
        ("Please try again later, in 20 s or so", None),
        ("Limit 20s", None),
    ],
)
def test_the_time_to_wait_is_read_from_the_sentence(said: str, seconds: float | None) -> None:
    assert find_wait(said) == seconds


@pytest.mark.parametrize(
    ("said", "named", "parameter"),
    [
        ("Unsupported value: 'temperature' does not support 0 with this model.", "temperature", "temperature"),
        (
            "litellm.UnsupportedParamsError: openai does not support parameters: {'temperature': 0.0}",
            None,
            "temperature",
        ),
        ("[{'loc': ['body', 'temperature'], 'msg': 'Extra inputs are not permitted'}]", None, "temperature"),
        ("Unrecognized request argument supplied: max_completion_tokens", None, "max_completion_tokens"),
        ("max_tokens is too large: 100000. This model supports at most 16384.", "max_tokens", "max_tokens"),
        ("'response_format' of type json_schema is not supported with this model", None, "response_format"),
        (
            'Invalid JSON payload received. Unknown name "responseJsonSchema": Cannot find field.',
            None,
            "response_format",
        ),
        ("registry.ollama.ai/library/llava does not support tools", None, "tools"),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', None, "tools"),
        ("No endpoints found that support tool use", None, "tools"),
        ("The model `x` does not exist", "model", None),
        (
            "This model's maximum context length is 8192 tokens; reduce max_tokens or the prompt, which is invalid",
            None,
            None,
        ),
        ("Your image is too large", None, None),
    ],
)
def test_the_parameter_a_server_does_not_take_is_found(said: str, named: str | None, parameter: str | None) -> None:
    assert find_parameter(said, named) == parameter
