/* The vector layer with AVX-512 F, BW, DQ, VL: one register. Contract: simd.h. */
#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline vm vm_first(int64_t n)
{
    return (vm)((1u << n) - 1u);
}

static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_set1(float a)
{
    return _mm512_set1_ps(a);
}
static inline vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
static inline vf vf_load_n(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
static inline void vf_store(void *p, vf a)
{
    _mm512_storeu_ps(p, a);
}
static inline void vf_stream(float *p, vf a)
{
    _mm512_stream_ps(p, a);
}
static inline void vf_stream_end(void)
{
    _mm_sfence();
}
static inline void vf_store_n(void *p, vf a, int64_t n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), a);
}
static inline vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
static inline vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline float vf_sum(vf a)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float vf_hmax(vf a)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* out[i] = vf_sum of the i-th argument, the same additions. */
static inline void vf_sum4(vf a, vf b, vf c, vf d, float *out)
{
    /* Lanes i and i + 8, i < 8: a in the lower, b in the upper half. */
    vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    /* i and i + 4: one quarter each, in the order a b c d. */
    vf q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0xb1));
    /* Lane 0 of each quarter. */
    const __m512i firsts = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, q)));
}

static inline vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vm vf_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static inline vm vf_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline vm vf_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
static inline vf vf_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline vm vm_and(vm a, vm b)
{
    return (vm)(a & b);
}
static inline vm vm_or(vm a, vm b)
{
    return (vm)(a | b);
}
static inline vm vm_not(vm a)
{
    return (vm)~a;
}
static inline int vm_any(vm a)
{
    return a != 0;
}

static inline vi vi_set1(int32_t a)
{
    return _mm512_set1_epi32(a);
}
static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline vi vi_load_n(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_epi32(vm_first(n), p);
}
static inline void vi_store(void *p, vi a)
{
    _mm512_storeu_si512(p, a);
}
static inline void vi_store_n(void *p, vi a, int64_t n)
{
    _mm512_mask_storeu_epi32(p, vm_first(n), a);
}
static inline void vi_store_low16(void *p, vi a)
{
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(a));
}
static inline void vi_store_low8(void *p, vi a)
{
    _mm_storeu_si128(p, _mm512_cvtepi32_epi8(a));
}
static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
static inline vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
#define vi_shl(a, count) _mm512_slli_epi32(a, count)
#define vi_shr(a, count) _mm512_srli_epi32(a, count)
#define vi_sar(a, count) _mm512_srai_epi32(a, count)
static inline vm vi_eq(vi a, vi b)
{
    return _mm512_cmpeq_epi32_mask(a, b);
}
static inline vm vi_gt(vi a, vi b)
{
    return _mm512_cmpgt_epi32_mask(a, b);
}
static inline vi vi_select(vm m, vi a, vi b)
{
    return _mm512_mask_blend_epi32(m, b, a);
}
static inline vf vi_to_vf(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline vi vf_to_vi(vf a)
{
    return _mm512_cvtps_epi32(a);
}
static inline vi vf_bits(vf a)
{
    return _mm512_castps_si512(a);
}
static inline vf vi_float(vi a)
{
    return _mm512_castsi512_ps(a);
}

static inline vf vf_load_bf16(const void *p)
{
    return vi_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline vf vf_load_bf16_n(const void *p, int64_t n)
{
    return vi_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), p)), 16));
}
static inline vf vf_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline vf vf_load_f16_n(const void *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vm_first(n), p));
}
static inline vf vf_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
static inline vf vf_load_i8_n(const void *p, int64_t n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(vm_first(n), p)));
}
