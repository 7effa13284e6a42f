/* The vector layer with AVX2, FMA and F16C: two registers, a for lanes 0..7 and b for 8..15. Contract:
 * simd.h. */
#include <immintrin.h>

typedef struct vf {
    __m256 a, b;
} vf;
typedef struct vi {
    __m256i a, b;
} vi;
typedef struct vm { /* all bits of a lane set, or none */
    __m256 a, b;
} vm;

static inline vi vi_set1(int32_t a)
{
    return (vi){_mm256_set1_epi32(a), _mm256_set1_epi32(a)};
}
/* Lanes below n, as the masks that maskload and maskstore take. */
static inline vi vi_first(int64_t n)
{
    const __m256i limit = _mm256_set1_epi32((int32_t)n);
    return (vi){_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
static inline vm vm_first(int64_t n)
{
    vi m = vi_first(n);
    return (vm){_mm256_castsi256_ps(m.a), _mm256_castsi256_ps(m.b)};
}

static inline vf vf_zero(void)
{
    return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline vf vf_set1(float a)
{
    return (vf){_mm256_set1_ps(a), _mm256_set1_ps(a)};
}
static inline vf vf_load(const void *p)
{
    const float *f = p;
    return (vf){_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
static inline vf vf_load_n(const void *p, int64_t n)
{
    const float *f = p;
    vi m = vi_first(n);
    return (vf){_mm256_maskload_ps(f, m.a), _mm256_maskload_ps(f + 8, m.b)};
}
static inline void vf_store(void *p, vf a)
{
    float *f = p;
    _mm256_storeu_ps(f, a.a);
    _mm256_storeu_ps(f + 8, a.b);
}
static inline void vf_stream(float *p, vf a)
{
    _mm256_stream_ps(p, a.a);
    _mm256_stream_ps(p + 8, a.b);
}
static inline void vf_stream_end(void)
{
    _mm_sfence();
}
static inline void vf_store_n(void *p, vf a, int64_t n)
{
    float *f = p;
    vi m = vi_first(n);
    _mm256_maskstore_ps(f, m.a, a.a);
    _mm256_maskstore_ps(f + 8, m.b, a.b);
}

#define QW_BOTH(name, intrinsic)                                                                             \
    static inline vf name(vf x, vf y)                                                                        \
    {                                                                                                        \
        return (vf){intrinsic(x.a, y.a), intrinsic(x.b, y.b)};                                               \
    }
QW_BOTH(vf_add, _mm256_add_ps)
QW_BOTH(vf_sub, _mm256_sub_ps)
QW_BOTH(vf_mul, _mm256_mul_ps)
QW_BOTH(vf_div, _mm256_div_ps)
QW_BOTH(vf_max, _mm256_max_ps)
QW_BOTH(vf_min, _mm256_min_ps)
#undef QW_BOTH

static inline vf vf_sqrt(vf x)
{
    return (vf){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)};
}
static inline vf vf_fma(vf x, vf y, vf z)
{
    return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vf vf_round(vf x)
{
    return (vf){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

static inline float vf_sum(vf x)
{
    __m256 eight = _mm256_add_ps(x.a, x.b);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float vf_hmax(vf x)
{
    __m256 eight = _mm256_max_ps(x.a, x.b);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* out[i] = vf_sum of the i-th argument, the same additions. */
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    __m256 a8 = _mm256_add_ps(a.a, a.b), b8 = _mm256_add_ps(b.a, b.b);
    __m256 c8 = _mm256_add_ps(c.a, c.b), d8 = _mm256_add_ps(d.a, d.b);
    /* Lanes i and i + 4, i < 4: a in the lower, b in the upper half. */
    __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    /* i and i + 2: a0 a1 c0 c1 | b0 b1 d0 d1. */
    __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two)); /* a - c - | b - d - */
    __m128 ac = _mm256_castps256_ps128(one), bd = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm_shuffle_ps(ac, ac, 0x08), _mm_shuffle_ps(bd, bd, 0x08)));
}

static inline vm vf_lt(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
static inline vm vf_le(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
static inline vm vf_eq(vf x, vf y)
{
    return (vm){_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)};
}
static inline vm vf_is_nan(vf x)
{
    return (vm){_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
static inline vf vf_select(vm m, vf x, vf y)
{
    return (vf){_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}

static inline vm vm_and(vm x, vm y)
{
    return (vm){_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)};
}
static inline vm vm_or(vm x, vm y)
{
    return (vm){_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)};
}
static inline vm vm_not(vm x)
{
    const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
    return (vm){_mm256_xor_ps(x.a, all), _mm256_xor_ps(x.b, all)};
}
static inline int vm_any(vm x)
{
    return _mm256_movemask_ps(_mm256_or_ps(x.a, x.b)) != 0;
}

static inline vi vi_load(const void *p)
{
    const char *c = p;
    return (vi){_mm256_loadu_si256((const void *)c), _mm256_loadu_si256((const void *)(c + 32))};
}
static inline vi vi_load_n(const void *p, int64_t n)
{
    const int32_t *i = p;
    vi m = vi_first(n);
    return (vi){_mm256_maskload_epi32(i, m.a), _mm256_maskload_epi32(i + 8, m.b)};
}
static inline void vi_store(void *p, vi x)
{
    char *c = p;
    _mm256_storeu_si256((void *)c, x.a);
    _mm256_storeu_si256((void *)(c + 32), x.b);
}
static inline void vi_store_n(void *p, vi x, int64_t n)
{
    int32_t *i = p;
    vi m = vi_first(n);
    _mm256_maskstore_epi32(i, m.a, x.a);
    _mm256_maskstore_epi32(i + 8, m.b, x.b);
}
static inline void vi_store_low16(void *p, vi x)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    __m256i mixed = _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
    _mm256_storeu_si256(p, _mm256_permute4x64_epi64(mixed, 0xd8));
}
/* For lanes that fit: the packing saturates. */
static inline void vi_store_low8(void *p, vi x)
{
    __m256i mixed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128(p, _mm_packs_epi16(_mm256_castsi256_si128(mixed), _mm256_extracti128_si256(mixed, 1)));
}

#define QW_BOTH(name, intrinsic)                                                                             \
    static inline vi name(vi x, vi y)                                                                        \
    {                                                                                                        \
        return (vi){intrinsic(x.a, y.a), intrinsic(x.b, y.b)};                                               \
    }
QW_BOTH(vi_add, _mm256_add_epi32)
QW_BOTH(vi_sub, _mm256_sub_epi32)
QW_BOTH(vi_and, _mm256_and_si256)
QW_BOTH(vi_or, _mm256_or_si256)
QW_BOTH(vi_xor, _mm256_xor_si256)
#undef QW_BOTH
#define QW_SHIFT(name, intrinsic)                                                                            \
    static inline vi name(vi x, int count)                                                                   \
    {                                                                                                        \
        return (vi){intrinsic(x.a, count), intrinsic(x.b, count)};                                           \
    }
QW_SHIFT(vi_shl, _mm256_slli_epi32)
QW_SHIFT(vi_shr, _mm256_srli_epi32)
QW_SHIFT(vi_sar, _mm256_srai_epi32)
#undef QW_SHIFT

static inline vm vi_eq(vi x, vi y)
{
    return (vm){_mm256_castsi256_ps(_mm256_cmpeq_epi32(x.a, y.a)),
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(x.b, y.b))};
}
static inline vm vi_gt(vi x, vi y)
{
    return (vm){_mm256_castsi256_ps(_mm256_cmpgt_epi32(x.a, y.a)),
                _mm256_castsi256_ps(_mm256_cmpgt_epi32(x.b, y.b))};
}
static inline vf vi_to_vf(vi x)
{
    return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
static inline vi vf_to_vi(vf x)
{
    return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
static inline vi vf_bits(vf x)
{
    return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
static inline vf vi_float(vi x)
{
    return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
static inline vi vi_select(vm m, vi x, vi y)
{
    return vf_bits(vf_select(m, vi_float(x), vi_float(y)));
}

static inline __m256 half_bf16(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
static inline vf vf_load_bf16(const void *p)
{
    const char *c = p;
    return (vf){half_bf16(_mm_loadu_si128((const void *)c)),
                half_bf16(_mm_loadu_si128((const void *)(c + 16)))};
}
static inline vf vf_load_f16(const void *p)
{
    const char *c = p;
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const void *)c)),
                _mm256_cvtph_ps(_mm_loadu_si128((const void *)(c + 16)))};
}
static inline vf vf_load_bf16_n(const void *p, int64_t n)
{
    uint16_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load_bf16(lanes);
}
static inline vf vf_load_f16_n(const void *p, int64_t n)
{
    uint16_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * sizeof lanes[0]);
    return vf_load_f16(lanes);
}
static inline __m256 half_i8(const char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}
static inline vf vf_load_i8(const void *p)
{
    const char *c = p;
    return (vf){half_i8(c), half_i8(c + 8)};
}
static inline vf vf_load_i8_n(const void *p, int64_t n)
{
    int8_t lanes[16] = {0};
    memcpy(lanes, p, (size_t)n);
    return vf_load_i8(lanes);
}
