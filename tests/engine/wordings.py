"""How providers word that a request is too long, beside the rows of `overflow_errors.json`."""

OVERFLOW_WORDS = [
    # Anthropic, and those that pass it on
    "Prompt is too long",
    "prompt is too long: 1,213,462 tokens > 1,000,000 maximum",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - prompt too long",
    "input length and `max_tokens` exceed context limit: 200759 + 8192 > 200000, decrease input length or `max_tokens`",
    # OpenAI, Azure
    "This model's maximum context length is 4097 tokens, however you requested 5203 tokens (4203 in your prompt; 1000 for"
    " the completion). Please reduce your prompt; or completion length.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. Please reduce the"
    " length of the messages.",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens (8900 in the"
    " messages, 100 in the functions). Please reduce the length of the messages or functions.",
    # Bedrock
    "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length.",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "The request payload size has exceed context limit.",
    "Input is too long for this model",
    # Google
    "Unable to submit request because the input token count is 40000 but model only supports up to 32767. Reduce the input"
    " token count and try again.",
    # xAI, OpenRouter and friends
    "This endpoint's maximum context length is 65_536 tokens. However, you requested about 80000 tokens (70000 of text"
    " input, 6000 of tool input, 4000 in the output).",
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "Input is longer than the maximum context size",
    # vLLM and SGLang
    "The decoder prompt (length 21535) is longer than the maximum model length of 16384. Make sure that `max_model_len` is"
    " no smaller than the number of text tokens.",
    "The prompt (total length 21535) is too long to fit into the model (context length 16384).",
    "You passed 40961 input tokens and requested 100 output tokens. However, the model's context length is only 40960"
    " tokens, resulting in a maximum input length of 40860 tokens. Please reduce the length of the input messages.",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or enable truncation.",
    "Prompt length (5000) exceeds maximum input length (4096)",
    # llama.cpp, llama-cpp-python, LM Studio, Ollama
    "request (66202 tokens) exceeds the available context size (65536 tokens), try increasing it",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Requested tokens (2285) exceed context window of 2048",
    "Trying to keep the first 33000 tokens when context the overflows. However, the model is loaded with context length of"
    " only 4096 tokens, which is not enough.",
    "Reached context length of 4096 tokens with model that does not support mid-generation context overflow.",
    "Context size has been exceeded.",
    "cannot truncate prompt with n_keep (5000) >= n_ctx (4096)",
    "the input length exceeds the context length",
    "Prompt has 5000 tokens, but the configured context size is too small",
    # TGI, Replicate, Cohere, Fireworks, Databricks
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "Your input is too long. Max input length is 4096 tokens, but you supplied 5135 tokens.",
    "too many tokens: size limit exceeded by 4012 tokens. Try using shorter or fewer inputs.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter prompt.",
    "The prompt is too long: 150000, model maximum context length: 131071",
    "BAD_REQUEST: the input exceeds max_input_tokens",
    "Token limit exceeded for this model",
    # Moonshot, z.ai, DashScope, MiniMax, Cloudflare, GitHub Models
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "Prompt exceeds max length",
    "Prompt 超长",
    "输入长度超过模型上限",
    "tokens in request more than max tokens allowed",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
    "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit (8192).",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "CONTEXT_WINDOW_EXCEEDED",
    "context_length_exceeded",
]
OUT_WORDS = [
    "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or `max_tokens` and"
    " try again",
    "This model's maximum context length is 4097 tokens, however you requested 4203 tokens (3703 in your prompt; 500 for the"
    " completion). Please reduce your prompt; or completion length.",
    "This model's maximum context length is 16,384 tokens. However, you requested 16,500 tokens (12,500 in the messages,"
    " 1_000 in the functions, and 3,000 in the completion). Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 65536 tokens. However, you requested about 70000 tokens (60000 of text input,"
    " 10000 in the output).",
    "You passed 30000 input tokens and requested 16384 output tokens. However, the model's context length is only 40960"
    " tokens, resulting in a maximum input length of 24576 tokens.",
    "'max_tokens' or 'max_completion_tokens' is too large: 2045. This model's maximum context length is 2048 tokens and your"
    " request has 8 input tokens (2045 > 2048 - 8).",
    "`inputs` tokens + `max_new_tokens` must be less than or equal to 4097. Given: 4000 `inputs` tokens and 200"
    " `max_new_tokens`",
    "This model's maximum context length is 128k tokens. However, you requested 130k tokens (120k in the messages, 10k in"
    " the completion).",
    "maximum context length is 1000 tokens. However, you requested 1200 tokens (400 in the completion).",
    "maximum context length is 1000 tokens. However, you requested 1200 tokens (800 in the messages).",
]
