/* The baseline of the binary interface: sizes, offsets and constants of qwen36.h, asserted when this file is
 * compiled. Written by tests/abi/update.py; lines are added by a new version, never changed (docs/abi.md). */
#include "qwen36.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define FIELD(type, member, offset, size)                                                                    \
    _Static_assert(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size), #member)
#define CONSTANT(name, value) _Static_assert((name) == (value), #name)

SIZE(qwen36_error, 512);
FIELD(qwen36_error, struct_size, 0, 4);
FIELD(qwen36_error, status, 4, 4);
FIELD(qwen36_error, message, 8, 504);

SIZE(qwen36_allocator, 32);
FIELD(qwen36_allocator, struct_size, 0, 4);
FIELD(qwen36_allocator, reserved, 4, 4);
FIELD(qwen36_allocator, allocate, 8, 8);
FIELD(qwen36_allocator, release, 16, 8);
FIELD(qwen36_allocator, user, 24, 8);

SIZE(qwen36_model_options, 88);
FIELD(qwen36_model_options, struct_size, 0, 4);
FIELD(qwen36_model_options, numerics, 4, 4);
FIELD(qwen36_model_options, kv_dtype, 8, 4);
FIELD(qwen36_model_options, weights_access, 12, 4);
FIELD(qwen36_model_options, cpu_tier, 16, 4);
FIELD(qwen36_model_options, threads, 20, 4);
FIELD(qwen36_model_options, max_sessions, 24, 4);
FIELD(qwen36_model_options, context_length, 28, 4);
FIELD(qwen36_model_options, max_batch_tokens, 32, 4);
FIELD(qwen36_model_options, reserved, 36, 4);
FIELD(qwen36_model_options, cache_bytes, 40, 8);
FIELD(qwen36_model_options, allocator, 48, 8);
FIELD(qwen36_model_options, log, 56, 8);
FIELD(qwen36_model_options, log_user, 64, 8);
FIELD(qwen36_model_options, progress, 72, 8);
FIELD(qwen36_model_options, progress_user, 80, 8);

SIZE(qwen36_memory_estimate, 56);
FIELD(qwen36_memory_estimate, struct_size, 0, 4);
FIELD(qwen36_memory_estimate, reserved, 4, 4);
FIELD(qwen36_memory_estimate, weight_bytes, 8, 8);
FIELD(qwen36_memory_estimate, cache_bytes, 16, 8);
FIELD(qwen36_memory_estimate, state_bytes, 24, 8);
FIELD(qwen36_memory_estimate, workspace_bytes, 32, 8);
FIELD(qwen36_memory_estimate, session_bytes, 40, 8);
FIELD(qwen36_memory_estimate, total_bytes, 48, 8);

SIZE(qwen36_model_info, 168);
FIELD(qwen36_model_info, struct_size, 0, 4);
FIELD(qwen36_model_info, is_moe, 4, 4);
FIELD(qwen36_model_info, vocab_size, 8, 4);
FIELD(qwen36_model_info, token_count, 12, 4);
FIELD(qwen36_model_info, bitmask_words, 16, 4);
FIELD(qwen36_model_info, hidden_size, 20, 4);
FIELD(qwen36_model_info, layers, 24, 4);
FIELD(qwen36_model_info, attention_layers, 28, 4);
FIELD(qwen36_model_info, heads, 32, 4);
FIELD(qwen36_model_info, kv_heads, 36, 4);
FIELD(qwen36_model_info, head_dim, 40, 4);
FIELD(qwen36_model_info, linear_key_heads, 44, 4);
FIELD(qwen36_model_info, linear_value_heads, 48, 4);
FIELD(qwen36_model_info, linear_key_dim, 52, 4);
FIELD(qwen36_model_info, linear_value_dim, 56, 4);
FIELD(qwen36_model_info, intermediate_size, 60, 4);
FIELD(qwen36_model_info, experts, 64, 4);
FIELD(qwen36_model_info, experts_per_token, 68, 4);
FIELD(qwen36_model_info, expert_size, 72, 4);
FIELD(qwen36_model_info, shared_expert_size, 76, 4);
FIELD(qwen36_model_info, tied_head, 80, 4);
FIELD(qwen36_model_info, max_positions, 84, 4);
FIELD(qwen36_model_info, context_length, 88, 4);
FIELD(qwen36_model_info, max_sessions, 92, 4);
FIELD(qwen36_model_info, max_batch_tokens, 96, 4);
FIELD(qwen36_model_info, threads, 100, 4);
FIELD(qwen36_model_info, numerics, 104, 4);
FIELD(qwen36_model_info, kv_dtype, 108, 4);
FIELD(qwen36_model_info, cpu_tier, 112, 4);
FIELD(qwen36_model_info, kv_block_tokens, 116, 4);
FIELD(qwen36_model_info, kv_blocks, 120, 4);
FIELD(qwen36_model_info, bos_token, 124, 4);
FIELD(qwen36_model_info, pad_token, 128, 4);
FIELD(qwen36_model_info, reserved, 132, 4);
FIELD(qwen36_model_info, parameters, 136, 8);
FIELD(qwen36_model_info, weight_bytes, 144, 8);
FIELD(qwen36_model_info, kv_token_bytes, 152, 8);
FIELD(qwen36_model_info, state_bytes, 160, 8);

SIZE(qwen36_decoder_options, 8);
FIELD(qwen36_decoder_options, struct_size, 0, 4);
FIELD(qwen36_decoder_options, flags, 4, 4);

SIZE(qwen36_session_options, 24);
FIELD(qwen36_session_options, struct_size, 0, 4);
FIELD(qwen36_session_options, context_length, 4, 4);
FIELD(qwen36_session_options, on_logits, 8, 8);
FIELD(qwen36_session_options, user, 16, 8);

SIZE(qwen36_step_options, 8);
FIELD(qwen36_step_options, struct_size, 0, 4);
FIELD(qwen36_step_options, max_tokens, 4, 4);

SIZE(qwen36_sampling, 56);
FIELD(qwen36_sampling, struct_size, 0, 4);
FIELD(qwen36_sampling, top_k, 4, 4);
FIELD(qwen36_sampling, temperature, 8, 4);
FIELD(qwen36_sampling, top_p, 12, 4);
FIELD(qwen36_sampling, min_p, 16, 4);
FIELD(qwen36_sampling, repetition_penalty, 20, 4);
FIELD(qwen36_sampling, presence_penalty, 24, 4);
FIELD(qwen36_sampling, frequency_penalty, 28, 4);
FIELD(qwen36_sampling, logprobs, 32, 4);
FIELD(qwen36_sampling, reserved, 36, 4);
FIELD(qwen36_sampling, seed, 40, 8);
FIELD(qwen36_sampling, stream, 48, 8);

SIZE(qwen36_generate_options, 32);
FIELD(qwen36_generate_options, struct_size, 0, 4);
FIELD(qwen36_generate_options, max_tokens, 4, 4);
FIELD(qwen36_generate_options, ignore_end_tokens, 8, 4);
FIELD(qwen36_generate_options, decode_flags, 12, 4);
FIELD(qwen36_generate_options, on_text, 16, 8);
FIELD(qwen36_generate_options, user, 24, 8);

SIZE(qwen36_generate_result, 40);
FIELD(qwen36_generate_result, struct_size, 0, 4);
FIELD(qwen36_generate_result, finish, 4, 4);
FIELD(qwen36_generate_result, prompt_tokens, 8, 8);
FIELD(qwen36_generate_result, output_tokens, 16, 8);
FIELD(qwen36_generate_result, prompt_seconds, 24, 8);
FIELD(qwen36_generate_result, output_seconds, 32, 8);

CONSTANT(QWEN36_VERSION_MAJOR, 0);
CONSTANT(QWEN36_VERSION_MINOR, 1);
CONSTANT(QWEN36_VERSION_PATCH, 0);
CONSTANT(QWEN36_VERSION_NUMBER, 100);
CONSTANT(QWEN36_FEATURE_MOE, 1);
CONSTANT(QWEN36_FEATURE_DENSE, 2);
CONSTANT(QWEN36_FEATURE_YARN, 4);
CONSTANT(QWEN36_FEATURE_BF16_KV, 8);
CONSTANT(QWEN36_ENCODE_PARSE_SPECIAL, 1);
CONSTANT(QWEN36_DECODE_SKIP_SPECIAL, 1);
CONSTANT(QWEN36_LOGPROBS_MAX, 20);
CONSTANT(QWEN36_OK, 0);
CONSTANT(QWEN36_PENDING, 1);
CONSTANT(QWEN36_INTERRUPTED, 2);
CONSTANT(QWEN36_ERROR_ARGUMENT, -1);
CONSTANT(QWEN36_ERROR_STRUCT_SIZE, -2);
CONSTANT(QWEN36_ERROR_OUT_OF_MEMORY, -3);
CONSTANT(QWEN36_ERROR_BUFFER_TOO_SMALL, -4);
CONSTANT(QWEN36_ERROR_BUSY, -5);
CONSTANT(QWEN36_ERROR_FORKED, -6);
CONSTANT(QWEN36_ERROR_CANCELLED, -7);
CONSTANT(QWEN36_ERROR_INTERNAL, -8);
CONSTANT(QWEN36_ERROR_SYSTEM, -9);
CONSTANT(QWEN36_ERROR_FILE_NOT_FOUND, -20);
CONSTANT(QWEN36_ERROR_FILE_READ, -21);
CONSTANT(QWEN36_ERROR_FILE_CHANGED, -22);
CONSTANT(QWEN36_ERROR_JSON, -23);
CONSTANT(QWEN36_ERROR_CONFIG, -24);
CONSTANT(QWEN36_ERROR_ARCHITECTURE, -25);
CONSTANT(QWEN36_ERROR_ROPE_TYPE, -26);
CONSTANT(QWEN36_ERROR_QUANTIZATION, -27);
CONSTANT(QWEN36_ERROR_SAFETENSORS, -28);
CONSTANT(QWEN36_ERROR_MISSING_SHARD, -29);
CONSTANT(QWEN36_ERROR_INDEX_MISMATCH, -30);
CONSTANT(QWEN36_ERROR_MISSING_TENSOR, -31);
CONSTANT(QWEN36_ERROR_TENSOR_SHAPE, -32);
CONSTANT(QWEN36_ERROR_TENSOR_DTYPE, -33);
CONSTANT(QWEN36_ERROR_TIED_HEAD, -34);
CONSTANT(QWEN36_ERROR_TOKENIZER, -35);
CONSTANT(QWEN36_ERROR_NO_TOKENIZER, -36);
CONSTANT(QWEN36_ERROR_TOKEN_ID, -50);
CONSTANT(QWEN36_ERROR_CONTEXT_FULL, -51);
CONSTANT(QWEN36_ERROR_CACHE_FULL, -52);
CONSTANT(QWEN36_ERROR_SESSIONS_FULL, -53);
CONSTANT(QWEN36_ERROR_NO_LOGITS, -54);
CONSTANT(QWEN36_ERROR_NON_FINITE, -55);
CONSTANT(QWEN36_ERROR_NO_CANDIDATE, -56);
CONSTANT(QWEN36_ERROR_DEVICE, -70);
CONSTANT(QWEN36_LOG_DEBUG, 0);
CONSTANT(QWEN36_LOG_INFO, 1);
CONSTANT(QWEN36_LOG_WARNING, 2);
CONSTANT(QWEN36_NUMERICS_REFERENCE, 1);
CONSTANT(QWEN36_NUMERICS_FAST, 2);
CONSTANT(QWEN36_KV_AUTO, 0);
CONSTANT(QWEN36_KV_F32, 1);
CONSTANT(QWEN36_KV_BF16, 2);
CONSTANT(QWEN36_WEIGHTS_MAP, 1);
CONSTANT(QWEN36_WEIGHTS_READ, 2);
CONSTANT(QWEN36_CPU_AUTO, 0);
CONSTANT(QWEN36_CPU_PORTABLE, 1);
CONSTANT(QWEN36_CPU_AVX2, 2);
CONSTANT(QWEN36_CPU_AVX512, 3);
CONSTANT(QWEN36_LOGITS_NONE, 0);
CONSTANT(QWEN36_LOGITS_LAST, 1);
CONSTANT(QWEN36_LOGITS_ALL, 2);
CONSTANT(QWEN36_FINISH_END_TOKEN, 1);
CONSTANT(QWEN36_FINISH_LENGTH, 2);
CONSTANT(QWEN36_FINISH_CONTEXT_FULL, 3);
CONSTANT(QWEN36_FINISH_CALLBACK, 4);
CONSTANT(QWEN36_FINISH_INTERRUPTED, 5);
CONSTANT(QWEN36_FINISH_ERROR, 6);
