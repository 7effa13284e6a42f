/* config.json and generation_config.json: the official files, every accepted spelling, every refusal; and
 * the rotation table that follows from them. */
#include "lib/weights/config.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint_fixture.h"

#include <math.h>

static qwen36_status parse(const char *text, qw_dims *dims, qw_generation *generation, qwen36_error *error)
{
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    memset(dims, 0xa5, sizeof *dims);
    qw_generation_init(generation);
    return qw_config_parse(text, strlen(text), "config.json", dims, generation, error);
}

static qw_dims accepted(const char *text)
{
    qw_dims dims;
    qw_generation generation;
    qwen36_error error;
    qwen36_status status = parse(text, &dims, &generation, &error);
    CHECK_MSG(status == QWEN36_OK, "%s", error.message);
    return dims;
}

static void check_refused(const char *text, qwen36_status status, const char *part, int line)
{
    qw_dims dims;
    qw_generation generation;
    qwen36_error error;
    qwen36_status got = parse(text, &dims, &generation, &error);
    CHECK_MSG(got == status && error.status == status, "line %d: status %d: %s", line, got, error.message);
    CHECK_MSG(strncmp(error.message, "config.json: ", 13) == 0 && strstr(error.message, part) != NULL,
              "line %d: \"%s\" lacks \"%s\"", line, error.message, part);
}

/* --- Official files ------------------------------------------------------------------------------- */

typedef struct official {
    const char *name;
    int32_t hidden, layers, heads, kv_heads, lin_v_heads, width, tied;
} official;

static void check_official(const official *o)
{
    char name[100];
    snprintf(name, sizeof name, "configs/%s/config.json", o->name);
    const char *path = test_asset(name);
    if (path == NULL)
        SKIP("the official configurations are not there");
    char *text = test_read_file(path, NULL);
    CHECK(text != NULL);
    const qw_dims d = accepted(text);
    free(text);
    CHECK_INT(d.hidden, o->hidden);
    CHECK_INT(d.layers, o->layers);
    CHECK_INT(d.heads, o->heads);
    CHECK_INT(d.kv_heads, o->kv_heads);
    CHECK_INT(d.lin_v_heads, o->lin_v_heads);
    CHECK_INT(d.is_moe ? d.expert_size : d.intermediate, o->width);
    CHECK_INT(d.tied_head, o->tied);
    CHECK(d.vocab_size == 248320 && d.head_dim == 256 && d.rotary_dim == 64 && d.lin_k_heads == 16);
    CHECK(d.lin_k_dim == 128 && d.lin_v_dim == 128 && d.conv_width == 4 && d.max_positions == 262144);
    CHECK(d.rope_kind == QW_ROPE_DEFAULT && d.rope_theta == 1e7 && d.norm_eps == 1e-6f);
    CHECK(d.mrope_section[0] == 11 && d.mrope_section[1] == 11 && d.mrope_section[2] == 10);
    CHECK(d.full_layers == d.layers / 4 && d.linear_layers == d.layers - d.full_layers);
    for (int32_t i = 0; i < d.layers; i++) {
        CHECK_INT(d.layer_kind[i], i % 4 == 3 ? QW_LAYER_FULL : QW_LAYER_LINEAR);
        CHECK_INT(d.layer_index[i], i % 4 == 3 ? i / 4 : i - i / 4);
    }
}

TEST(config, official)
{
    static const official all[] = {
        {"Qwen3.6-35B-A3B", 2048, 40, 16, 2, 32, 512, 0}, {"Qwen3.6-27B", 5120, 64, 24, 4, 48, 17408, 0},
        {"Qwen3.5-27B", 5120, 64, 24, 4, 48, 17408, 0},   {"Qwen3.5-9B", 4096, 32, 16, 4, 32, 12288, 0},
        {"Qwen3.5-4B", 2560, 32, 16, 4, 32, 9216, 1},     {"Qwen3.5-2B", 2048, 24, 8, 2, 16, 6144, 1},
        {"Qwen3.5-0.8B", 1024, 24, 8, 2, 16, 3584, 1},
    };
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        check_official(&all[i]);
}

TEST(config, official_moe)
{
    const char *path = test_asset("configs/Qwen3.6-35B-A3B/config.json");
    if (path == NULL)
        SKIP("the official configurations are not there");
    char *text = test_read_file(path, NULL);
    const qw_dims d = accepted(text);
    free(text);
    CHECK(d.is_moe && d.experts == 256 && d.top_k == 8 && d.expert_size == 512 && d.shared_size == 512);
    CHECK_INT(d.intermediate, 0);
    CHECK_INT(qw_dims_conv_channels(&d), 8192);
}

/* --- Spellings ------------------------------------------------------------------------------------ */

TEST(config, defaults)
{
    qw_dims d = accepted("{\"model_type\":\"qwen3_5_moe\"}");
    CHECK(d.hidden == 2048 && d.layers == 40 && d.heads == 16 && d.kv_heads == 2 && d.experts == 256);
    CHECK(d.top_k == 8 && d.expert_size == 512 && d.shared_size == 512 && d.head_dim == 256);
    CHECK(d.max_positions == 32768 && d.rotary_dim == 64 && d.norm_eps == 1e-6f && !d.tied_head);
    CHECK(d.layer_kind[2] == QW_LAYER_LINEAR && d.layer_kind[3] == QW_LAYER_FULL);
    CHECK(d.mrope_section[0] == 11 && d.mrope_section[1] == 11 && d.mrope_section[2] == 10);
    d = accepted("{\"model_type\":\"qwen3_5_text\"}");
    CHECK(d.hidden == 4096 && d.layers == 32 && d.kv_heads == 4 && d.intermediate == 12288 && d.experts == 0);
}

TEST(config, text_only)
{
    const qw_dims d = accepted(
        "{\"architectures\":[\"Qwen3_5MoeForCausalLM\"],\"model_type\":\"qwen3_5_moe_text\",\"head_dim\":36,"
        "\"hidden_size\":92,\"full_attention_interval\":3,\"num_hidden_layers\":6,\"bos_token_id\":null,"
        "\"partial_rotary_factor\":0.5,\"rope_theta\":10000.0,\"max_position_embeddings\":512,"
        "\"rope_parameters\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":128,"
        "\"mrope_section\":[3,3,3]},\"tie_word_embeddings\":true}");
    CHECK(d.is_moe && d.rotary_dim == 18 && d.rope_theta == 10000.0 && d.tied_head);
    CHECK(d.rope_kind == QW_ROPE_YARN && d.yarn_factor == 4.0 && d.original_max_positions == 128);
    CHECK_INT(d.max_positions, 512);
    CHECK(d.layer_kind[2] == QW_LAYER_FULL && d.layer_kind[3] == QW_LAYER_LINEAR && d.layer_index[5] == 1);
    CHECK(d.full_layers == 2 && d.bos_token == -1);
}

TEST(config, flat_rope_keys)
{
    qw_dims d = accepted("{\"model_type\":\"qwen3_5_text\",\"rope_theta\":123456,\"rope_type\":\"yarn\","
                         "\"factor\":2,\"partial_rotary_factor\":0.5,\"mrope_section\":[22,21,21]}");
    CHECK(d.rope_theta == 123456.0 && d.rotary_dim == 128 && d.rope_kind == QW_ROPE_YARN);
    CHECK(d.max_positions == 65536 && d.original_max_positions == 32768);
    d = accepted(
        "{\"model_type\":\"qwen3_5_text\",\"rope_theta\":5,\"rope_scaling\":{\"rope_type\":\"default\","
        "\"rope_theta\":7}}");
    CHECK(d.rope_theta == 7.0 && d.rope_kind == QW_ROPE_DEFAULT);
    d = accepted("{\"model_type\":\"qwen3_5_text\",\"rope_parameters\":null,\"rope_scaling\":null}");
    CHECK(d.rope_theta == 10000.0);
}

TEST(config, tie_flag)
{
    CHECK_INT(
        accepted("{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"text_config\":{}}").tied_head,
        1);
    CHECK_INT(
        accepted("{\"model_type\":\"qwen3_5\",\"text_config\":{\"tie_word_embeddings\":true}}").tied_head, 1);
    CHECK_INT(accepted("{\"model_type\":\"qwen3_5\",\"text_config\":{}}").tied_head, 0);
    check_refused("{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":false,"
                  "\"text_config\":{\"tie_word_embeddings\":true}}",
                  QWEN36_ERROR_TIED_HEAD, "is false at the root and true in text_config", __LINE__);
}

/* The published default, cut as the interleaving cuts it. */
TEST(config, sections_by_default)
{
    const qw_dims d = accepted("{\"model_type\":\"qwen3_5_text\",\"head_dim\":32}");
    CHECK(d.mrope_section[0] == 2 && d.mrope_section[1] == 1 && d.mrope_section[2] == 1);
}

/* --- Refusals ------------------------------------------------------------------------------------- */

#define WITH(from, to) fixture_config_with(fixture_dense, from, to)
#define MOE_WITH(from, to) fixture_config_with(fixture_moe, from, to)
#define REFUSED(text, status, part) check_refused(text, status, part, __LINE__)

TEST(config, refused_kind)
{
    REFUSED("[]", QWEN36_ERROR_CONFIG, "expected an object");
    REFUSED("{]", QWEN36_ERROR_JSON, "byte 1");
    REFUSED("{}", QWEN36_ERROR_ARCHITECTURE, "model_type is missing");
    REFUSED("{\"model_type\":5}", QWEN36_ERROR_CONFIG, "model_type is 5, expected a string");
    REFUSED("{\"model_type\":\"qwen3_next\"}", QWEN36_ERROR_ARCHITECTURE, "\"qwen3_next\"");
    REFUSED("{\"model_type\":\"qwen3_5_moe_\"}", QWEN36_ERROR_ARCHITECTURE, "\"qwen3_5_moe_\"");
    REFUSED("{\"model_type\":\"qwen4_exp\",\"text_config\":{}}", QWEN36_ERROR_ARCHITECTURE, "\"qwen4_exp\"");
    REFUSED("{\"model_type\":\"qwen3_5\",\"text_config\":{\"model_type\":\"qwen3_5_moe_text\"}}",
            QWEN36_ERROR_ARCHITECTURE, "\"qwen3_5_moe_text\" in text_config");
    REFUSED("{\"model_type\":\"qwen3_5\",\"text_config\":[]}", QWEN36_ERROR_CONFIG, "text_config");
    REFUSED("{\"model_type\":\"qwen3_5\",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
            QWEN36_ERROR_QUANTIZATION, "quant_method \"fp8\"");
    REFUSED(
        "{\"model_type\":\"qwen3_5\",\"text_config\":{\"quantization_config\":{\"quant_method\":\"gptq\"}}}",
        QWEN36_ERROR_QUANTIZATION, "quant_method \"gptq\"");
    REFUSED("{\"model_type\":\"qwen3_5\",\"quantization_config\":{\"quant_algo\":\"NVFP4\"}}",
            QWEN36_ERROR_QUANTIZATION, "(none)");
    REFUSED(WITH("\"rope_type\":\"default\"", "\"rope_type\":\"linear\""), QWEN36_ERROR_ROPE_TYPE,
            "\"linear\"");
    REFUSED(WITH("\"rope_type\":\"default\"", "\"type\":\"longrope\""), QWEN36_ERROR_ROPE_TYPE,
            "\"longrope\"");
}

TEST(config, refused_sizes)
{
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":0"), QWEN36_ERROR_CONFIG, "hidden_size is 0");
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":-20"), QWEN36_ERROR_CONFIG, "hidden_size is -20");
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":20.5"), QWEN36_ERROR_CONFIG,
            "hidden_size: expected an integer");
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":\"20\""), QWEN36_ERROR_CONFIG,
            "hidden_size is \"20\"");
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":4294967316"), QWEN36_ERROR_CONFIG,
            "hidden_size is 4294967316");
    REFUSED(WITH("\"hidden_size\":20", "\"hidden_size\":100000000"), QWEN36_ERROR_CONFIG,
            "hidden_size is 100000000");
    REFUSED(WITH("\"num_hidden_layers\":4", "\"num_hidden_layers\":257"), QWEN36_ERROR_CONFIG,
            "is 257, expected 1 to 256");
    REFUSED(WITH("\"num_hidden_layers\":4", "\"num_hidden_layers\":0"), QWEN36_ERROR_CONFIG,
            "is 0, expected 1 to 256");
    REFUSED(WITH("\"num_key_value_heads\":2", "\"num_key_value_heads\":4"), QWEN36_ERROR_CONFIG,
            "num_attention_heads is 6, expected a multiple of num_key_value_heads 4");
    REFUSED(WITH("\"linear_num_key_heads\":2", "\"linear_num_key_heads\":3"), QWEN36_ERROR_CONFIG,
            "linear_num_value_heads is 4, expected a multiple of linear_num_key_heads 3");
    REFUSED(WITH("\"linear_conv_kernel_dim\":4", "\"linear_conv_kernel_dim\":1"), QWEN36_ERROR_CONFIG,
            "is 1, expected 2");
    REFUSED(WITH("\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":0.2"), QWEN36_ERROR_CONFIG,
            "is 3, expected an even");
    REFUSED(WITH("\"partial_rotary_factor\":0.25", "\"partial_rotary_factor\":1.5"), QWEN36_ERROR_CONFIG,
            "partial_rotary_factor");
    REFUSED(WITH("[1,1,0]", "[1,1,1]"), QWEN36_ERROR_CONFIG,
            "mrope_section is [1, 1, 1], expected a sum of 2");
    REFUSED(WITH("[1,1,0]", "[3,-1,0]"), QWEN36_ERROR_CONFIG, "mrope_section");
    REFUSED(WITH("[1,1,0]", "[1,1]"), QWEN36_ERROR_CONFIG, "three integers");
    REFUSED(WITH("\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":0"), QWEN36_ERROR_CONFIG, "rms_norm_eps");
    REFUSED(WITH("\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":1e-60"), QWEN36_ERROR_CONFIG, "rms_norm_eps");
    REFUSED(WITH("\"rms_norm_eps\":1e-06", "\"rms_norm_eps\":1e999"), QWEN36_ERROR_CONFIG, "rms_norm_eps");
    REFUSED(WITH("\"rope_theta\":10000000", "\"rope_theta\":1"), QWEN36_ERROR_CONFIG, "rope_theta");
    REFUSED(MOE_WITH("\"num_experts\":5", "\"num_experts\":4097"), QWEN36_ERROR_CONFIG,
            "num_experts is 4097");
    REFUSED(MOE_WITH("\"num_experts_per_tok\":2", "\"num_experts_per_tok\":6"), QWEN36_ERROR_CONFIG,
            "num_experts_per_tok is 6, expected 1 to 5");
    REFUSED(MOE_WITH("\"num_experts\":5,\"num_experts_per_tok\":2",
                     "\"num_experts\":128,\"num_experts_per_tok\":65"),
            QWEN36_ERROR_CONFIG, "num_experts_per_tok is 65, expected 1 to 64");
}

/* Each size is in range, but not what they multiply to. */
TEST(config, refused_products)
{
    REFUSED(WITH("\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":16",
                 "\"num_attention_heads\":65536,\"num_key_value_heads\":2,\"head_dim\":16384"),
            QWEN36_ERROR_CONFIG, "num_attention_heads x head_dim multiply");
    REFUSED(
        WITH("\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":6",
             "\"linear_num_key_heads\":65536,\"linear_num_value_heads\":65536,\"linear_key_head_dim\":65536"),
        QWEN36_ERROR_CONFIG, "multiply");
    REFUSED(
        MOE_WITH(
            "\"hidden_size\":20,\"num_hidden_layers\":4,\"num_attention_heads\":6,\"num_key_value_heads\":2,"
            "\"head_dim\":16,\"num_experts\":5,\"num_experts_per_tok\":2,\"moe_intermediate_size\":12",
            "\"hidden_size\":16777216,\"num_hidden_layers\":4,\"num_attention_heads\":6,"
            "\"num_key_value_heads\":2,\"head_dim\":16,\"num_experts\":4096,\"num_experts_per_tok\":2,"
            "\"moe_intermediate_size\":16777216"),
        QWEN36_ERROR_CONFIG, "the experts' sizes multiply");
}

TEST(config, refused_variants)
{
    REFUSED("{\"model_type\":\"qwen3_5\",\"attn_output_gate\":false}", QWEN36_ERROR_CONFIG,
            "attn_output_gate is false");
    REFUSED("{\"model_type\":\"qwen3_5\",\"attention_bias\":true}", QWEN36_ERROR_CONFIG,
            "attention_bias is true");
    REFUSED("{\"model_type\":\"qwen3_5\",\"hidden_act\":\"gelu\"}", QWEN36_ERROR_CONFIG,
            "hidden_act is \"gelu\"");
    REFUSED("{\"model_type\":\"qwen3_5\",\"output_gate_type\":\"sigmoid\"}", QWEN36_ERROR_CONFIG,
            "\"sigmoid\"");
    REFUSED(WITH("\"mrope_interleaved\":true", "\"mrope_interleaved\":false"), QWEN36_ERROR_CONFIG,
            "mrope_interleaved");
    REFUSED("{\"model_type\":\"qwen3_5\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\"]}",
            QWEN36_ERROR_CONFIG, "has 1 entries, expected num_hidden_layers 2");
    REFUSED("{\"model_type\":\"qwen3_5\",\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"]}",
            QWEN36_ERROR_CONFIG, "layer_types[0] is \"sliding_attention\"");
    REFUSED("{\"model_type\":\"qwen3_5\",\"num_hidden_layers\":1,\"layer_types\":[1]}", QWEN36_ERROR_CONFIG,
            "(no string)");
    REFUSED("{\"model_type\":\"qwen3_5\",\"full_attention_interval\":0}", QWEN36_ERROR_CONFIG,
            "full_attention_interval is 0");
    REFUSED("{\"model_type\":\"qwen3_5\",\"eos_token_id\":248320}", QWEN36_ERROR_CONFIG,
            "eos_token_id is 248320");
    REFUSED("{\"model_type\":\"qwen3_5\",\"bos_token_id\":-1}", QWEN36_ERROR_CONFIG, "bos_token_id is -1");
}

TEST(config, refused_yarn)
{
    const char *yarn = "{\"model_type\":\"qwen3_5\",\"rope_parameters\":{\"rope_type\":\"yarn\",%s}}";
    static const char *const faults[][2] = {
        {"\"factor\":0.5", "factor"},
        {"\"factor\":-4", "factor"},
        {"\"factor\":\"4\"", "factor is \"4\", expected a number"},
        {"\"factor\":4,\"original_max_position_embeddings\":0", "original_max_position_embeddings"},
        {"\"factor\":4,\"beta_fast\":1,\"beta_slow\":2", "beta_fast"},
        {"\"factor\":4,\"beta_slow\":0", "beta_slow"},
        {"\"factor\":4,\"attention_factor\":-1", "attention_factor"},
    };
    for (size_t i = 0; i < QW_COUNT_OF(faults); i++) {
        char text[300];
        snprintf(text, sizeof text, yarn, faults[i][0]);
        REFUSED(text, QWEN36_ERROR_CONFIG, faults[i][1]);
    }
}

/* --- The rotation --------------------------------------------------------------------------------- */

static const char *const yarn_4 =
    "{\"model_type\":\"qwen3_5\",\"max_position_embeddings\":262144,\"rope_parameters\":{\"rope_type\":"
    "\"yarn\","
    "\"factor\":4.0,\"original_max_position_embeddings\":262144,\"rope_theta\":10000000}}";

/* The bits are those of torch's float32 steps; the values, computed in double precision, lie within an ulp.
 */
static bool is_near(float value, double exact)
{
    return fabs(value - exact) <= 1e-7 * exact;
}

TEST(config, rope_default)
{
    const qw_dims d = accepted("{\"model_type\":\"qwen3_5\",\"rope_parameters\":{\"rope_theta\":10000000}}");
    float inv_freq[32], scale = 0;
    uint8_t axis[32];
    int count[3] = {0, 0, 0};
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    CHECK(scale == 1.0f);
    CHECK(inv_freq[0] == 1.0f && inv_freq[1] == 0.604296386f && inv_freq[2] == 0.365174145f);
    CHECK(inv_freq[10] == 0.00649381662f && inv_freq[16] == 0.000316227786f &&
          inv_freq[31] == 1.65481708e-07f);
    CHECK(is_near(inv_freq[1], 0.60429639) && is_near(inv_freq[2], 0.365174127));
    CHECK(is_near(inv_freq[10], 0.00649381632) && is_near(inv_freq[31], 1.6548171e-07));
    for (int j = 0; j < 32; j++) {
        CHECK_INT(axis[j], j % 3 == 1 ? QW_AXIS_H : j % 3 == 2 && j < 30 ? QW_AXIS_W : QW_AXIS_T);
        count[axis[j]]++;
    }
    CHECK(count[0] == 11 && count[1] == 11 && count[2] == 10);
}

TEST(config, rope_yarn)
{
    const qw_dims d = accepted(yarn_4),
                  plain = accepted("{\"model_type\":\"qwen3_5\",\"rope_theta\":10000000}");
    float inv_freq[32], unscaled[32], scale = 0, one = 0;
    uint8_t axis[32];
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    qw_dims_rope_table(&plain, unscaled, axis, &one);
    CHECK_INT(d.max_positions, 1048576);
    CHECK(scale == 1.138629436f);
    for (int j = 0; j <= 14; j++)
        CHECK(inv_freq[j] == unscaled[j]);
    for (int j = 22; j < 32; j++)
        CHECK(inv_freq[j] == unscaled[j] / 4);
    CHECK(inv_freq[15] == 0.000474239816f && inv_freq[16] == 0.000256935076f &&
          inv_freq[21] == 8.75977003e-06f);
    CHECK(inv_freq[22] == 3.84981604e-06f && inv_freq[31] == 4.13704271e-08f);
    CHECK(is_near(inv_freq[15], 0.000474239823) && is_near(inv_freq[16], 0.00025693506));
    CHECK(is_near(inv_freq[21], 8.75977007e-06) && is_near(inv_freq[31], 4.13704275e-08));
}

/* Against the C library's power: equal but for the last bit, and that rarely. */
TEST(config, rope_agrees_with_libm)
{
    static const double thetas[] = {10.0, 500.0, 10000.0, 1e6, 1e7, 5e6, 12345.678, 1e12};
    int equal = 0, all = 0;
    for (size_t t = 0; t < QW_COUNT_OF(thetas); t++)
        for (int32_t rotary = 2; rotary <= 256; rotary += 2) {
            qw_dims d = {.rotary_dim = rotary, .rope_theta = thetas[t], .mrope_section = {rotary / 2, 0, 0}};
            float inv_freq[128], scale;
            uint8_t axis[128];
            qw_dims_rope_table(&d, inv_freq, axis, &scale);
            for (int32_t j = 0; j < rotary / 2; j++) {
                const float exponent = (float)(2 * j) / (float)rotary;
                const float expected = 1.0f / (float)pow((double)(float)thetas[t], (double)exponent);
                CHECK(fabsf(inv_freq[j] - expected) <= 1.3e-7f * expected);
                equal += inv_freq[j] == expected;
                all++;
            }
        }
    CHECK_MSG(equal == all, "%d of %d", equal, all);
}

TEST(config, yarn_options)
{
    qw_dims d =
        accepted(fixture_config_with(yarn_4, "\"factor\":4.0", "\"factor\":4.0,\"attention_factor\":1.5"));
    float inv_freq[32], scale = 0;
    uint8_t axis[32];
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    CHECK(scale == 1.5f);
    d = accepted(fixture_config_with(yarn_4, "\"factor\":4.0", "\"factor\":2.0"));
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    CHECK(scale == 1.069314718f && d.max_positions == 524288);
    d = accepted(fixture_config_with(yarn_4, "\"factor\":4.0",
                                     "\"factor\":4.0,\"mscale\":1.0,\"mscale_all_dim\":1.0"));
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    CHECK(scale == 1.0f);
    d = accepted(fixture_config_with(yarn_4, "\"factor\":4.0",
                                     "\"factor\":4.0,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":false"));
    qw_dims_rope_table(&d, inv_freq, axis, &scale);
    CHECK(inv_freq[14] == 0.000865964335f && is_near(inv_freq[22], 3.84981632e-06));
    d = accepted(fixture_config_with(yarn_4, "\"factor\":4.0,\"original_max_position_embeddings\":262144",
                                     "\"factor\":1.0"));
    CHECK_INT(d.max_positions, 262144);
}

/* --- generation_config.json ------------------------------------------------------------------------ */

static qwen36_status parse_generation(const char *text, qw_generation *generation, qwen36_error *error)
{
    *error = (qwen36_error)QWEN36_ERROR_INIT;
    return qw_generation_parse(text, strlen(text), "generation_config.json", 1000, generation, error);
}

TEST(config, generation)
{
    qw_generation g;
    qwen36_error error;
    qw_generation_init(&g);
    CHECK(!g.do_sample && g.top_k == 50 && g.temperature == 1.0f && g.top_p == 1.0f && g.min_p == 0.0f);
    CHECK(g.repetition_penalty == 1.0f && g.end_count == 0 && g.bos_token == -1 && g.pad_token == -1);
    const char *text = "{\"bos_token_id\":4,\"do_sample\":true,\"eos_token_id\":[6,5],\"pad_token_id\":null,"
                       "\"temperature\":0.7,\"top_k\":20,\"top_p\":0.95,\"min_p\":0.125,"
                       "\"repetition_penalty\":1.05,\"presence_penalty\":1.5,\"transformers_version\":\"5\"}";
    CHECK_MSG(parse_generation(text, &g, &error) == QWEN36_OK, "%s", error.message);
    CHECK(g.do_sample && g.top_k == 20 && g.temperature == 0.7f && g.top_p == 0.95f && g.min_p == 0.125f);
    CHECK(g.repetition_penalty == 1.05f && g.presence_penalty == 1.5f && g.frequency_penalty == 0.0f);
    CHECK(g.bos_token == 4 && g.pad_token == -1 && g.end_count == 2);
    CHECK(g.end_tokens[0] == 6 && g.end_tokens[1] == 5);
    CHECK_INT(parse_generation("{\"eos_token_id\":7}", &g, &error), QWEN36_OK);
    CHECK(g.end_count == 1 && g.end_tokens[0] == 7 && g.top_k == 20);
    CHECK_INT(parse_generation("{\"eos_token_id\":[]}", &g, &error), QWEN36_OK);
    CHECK_INT(g.end_count, 0);
}

TEST(config, generation_refused)
{
    static const char *const faults[][2] = {
        {"[]", "expected an object"},
        {"{\"eos_token_id\":1000}", "eos_token_id is 1000"},
        {"{\"eos_token_id\":[1,-1]}", "eos_token_id"},
        {"{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", "at most 16"},
        {"{\"eos_token_id\":\"x\"}", "eos_token_id is \"x\""},
        {"{\"top_k\":-1}", "top_k is -1"},
        {"{\"top_p\":0}", "top_p"},
        {"{\"top_p\":1.5}", "top_p"},
        {"{\"temperature\":-0.5}", "temperature"},
        {"{\"min_p\":2}", "min_p"},
        {"{\"repetition_penalty\":0}", "repetition_penalty"},
        {"{\"do_sample\":1}", "do_sample is 1, expected true or false"},
    };
    for (size_t i = 0; i < QW_COUNT_OF(faults); i++) {
        qw_generation g;
        qwen36_error error;
        qw_generation_init(&g);
        const qw_generation before = g;
        CHECK_INT(parse_generation(faults[i][0], &g, &error), QWEN36_ERROR_CONFIG);
        CHECK_MSG(strstr(error.message, faults[i][1]) != NULL, "%s", error.message);
        CHECK(memcmp(&g, &before, sizeof g) == 0);
    }
}
