/* Products by cuBLASLt. It is loaded when a backend opens, never linked: the library starts where it is
 * missing, and is then served by its own rows. All it needs is made here once (handle, descriptors,
 * workspace); a product fills the descriptors in, and asks the heuristic only for a shape that the table does
 * not hold. */
#include "kernels/cuda/runtime.h"

#if !__has_include(<cublasLt.h>)

qwen36_status qw_blas_open(const qw_allocator *, qw_blas **out)
{
    *out = nullptr;
    return QWEN36_OK;
}

void qw_blas_close(qw_blas *)
{
}

uint64_t qw_blas_version(const qw_blas *)
{
    return 0;
}

qwen36_status qw_blas_multiply(qw_blas *, qw_stream, const qw_blas_product *)
{
    return QWEN36_ERROR_DEVICE;
}

#else

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

/* The functions of the library, by the types of its header. */
#define QW_BLAS_FUNCTIONS(F)                                                                                 \
    F(cublasLtGetProperty)                                                                                   \
    F(cublasLtCreate)                                                                                        \
    F(cublasLtDestroy)                                                                                       \
    F(cublasLtGetVersion)                                                                                    \
    F(cublasLtMatmul)                                                                                        \
    F(cublasLtMatmulAlgoGetHeuristic)                                                                        \
    F(cublasLtMatmulDescCreate)                                                                              \
    F(cublasLtMatmulDescDestroy)                                                                             \
    F(cublasLtMatmulDescSetAttribute)                                                                        \
    F(cublasLtMatmulPreferenceCreate)                                                                        \
    F(cublasLtMatmulPreferenceDestroy)                                                                       \
    F(cublasLtMatmulPreferenceSetAttribute)                                                                  \
    F(cublasLtMatrixLayoutCreate)                                                                            \
    F(cublasLtMatrixLayoutDestroy)                                                                           \
    F(cublasLtMatrixLayoutSetAttribute)

struct blas_functions {
#define QW_BLAS_MEMBER(name) decltype(&::name) name;
    QW_BLAS_FUNCTIONS(QW_BLAS_MEMBER)
#undef QW_BLAS_MEMBER
};

/* All that the heuristic's choice depends on. Only int64_t, so that there are no bytes between them. */
struct blas_shape {
    int64_t rows, depth, columns, x_stride, w_stride, y_stride;
    int64_t x_alignment, w_alignment, y_alignment, dtype;
};

enum blas_choice { CHOICE_NONE, CHOICE_MADE, CHOICE_REFUSED };

struct blas_entry {
    blas_shape shape;
    blas_choice choice;
    cublasLtMatmulAlgo_t algorithm;
};

/* A model has about ten pairs of depth and columns; rows are as many as a step has. */
enum { BLAS_ENTRIES = 128 };

struct qw_blas {
    const qw_allocator *allocator;
    void *library;
    blas_functions call;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t x, w, y;
    void *workspace;
    blas_entry entry[BLAS_ENTRIES];
};

/* ---- opening ------------------------------------------------------------------------------------------ */

#define QW_BLAS_TEXT(x) #x
#define QW_BLAS_FILE(major) "libcublasLt.so." QW_BLAS_TEXT(major)

/* Algorithms and descriptors are laid out as in the header, so the major version must be the header's. */
static bool load_functions(qw_blas *blas)
{
    const struct {
        const char *name;
        void *member;
    } functions[] = {
#define QW_BLAS_NAMED(name) {#name, &blas->call.name},
        QW_BLAS_FUNCTIONS(QW_BLAS_NAMED)
#undef QW_BLAS_NAMED
    };
    static_assert(sizeof(void *) == sizeof(decltype(&::cublasLtCreate)), "dlsym gives functions as data");
    for (size_t i = 0; i < QW_COUNT_OF(functions); i++) {
        void *address = dlsym(blas->library, functions[i].name);
        if (address == nullptr)
            return false;
        memcpy(functions[i].member, &address, sizeof address);
    }
    int major = 0;
    return blas->call.cublasLtGetProperty(MAJOR_VERSION, &major) == CUBLAS_STATUS_SUCCESS &&
           major == CUBLAS_VER_MAJOR;
}

/* It stays in the process when it is closed: the driver knows its kernels, and the next model finds it there.
 */
static bool load_library(qw_blas *blas)
{
    const char *const files[] = {QW_BLAS_FILE(CUBLAS_VER_MAJOR), "libcublasLt.so"};
    for (size_t i = 0; i < QW_COUNT_OF(files) && blas->library == nullptr; i++)
        blas->library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return blas->library != nullptr && load_functions(blas);
}

/* y = x w^T by rows is y^T = w x^T by columns: the first factor is w, which lies transposed there, the second
 * x as it lies. Pointers alpha and beta are to host memory, which is what a descriptor begins with. */
static bool make_descriptors(qw_blas *blas)
{
    const blas_functions *call = &blas->call;
    const int32_t transposed = CUBLAS_OP_T;
    const uint64_t workspace = QW_BLAS_WORKSPACE;
    cublasLtMatrixLayout_t *const layouts[] = {&blas->x, &blas->w, &blas->y};
    bool made =
        call->cublasLtCreate(&blas->handle) == CUBLAS_STATUS_SUCCESS &&
        call->cublasLtMatmulDescCreate(&blas->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS &&
        call->cublasLtMatmulDescSetAttribute(blas->operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
        call->cublasLtMatmulPreferenceCreate(&blas->preference) == CUBLAS_STATUS_SUCCESS &&
        call->cublasLtMatmulPreferenceSetAttribute(blas->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &workspace, sizeof workspace) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < QW_COUNT_OF(layouts) && made; i++) /* sizes follow with each product */
        made = call->cublasLtMatrixLayoutCreate(layouts[i], CUDA_R_32F, 8, 8, 8) == CUBLAS_STATUS_SUCCESS;
    return made;
}

void qw_blas_close(qw_blas *blas)
{
    if (blas == nullptr)
        return;
    const blas_functions *call = &blas->call;
    qw_runtime_free(QW_SPACE_DEVICE, blas->workspace);
    const cublasLtMatrixLayout_t layouts[] = {blas->x, blas->w, blas->y};
    for (size_t i = 0; i < QW_COUNT_OF(layouts); i++)
        if (layouts[i] != nullptr)
            (void)call->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (blas->preference != nullptr)
        (void)call->cublasLtMatmulPreferenceDestroy(blas->preference);
    if (blas->operation != nullptr)
        (void)call->cublasLtMatmulDescDestroy(blas->operation);
    if (blas->handle != nullptr)
        (void)call->cublasLtDestroy(blas->handle);
    if (blas->library != nullptr)
        (void)dlclose(blas->library);
    qw_free(blas->allocator, blas);
    (void)cudaGetLastError(); /* whatever it left in this thread */
}

uint64_t qw_blas_version(const qw_blas *blas)
{
    return blas->call.cublasLtGetVersion();
}

qwen36_status qw_blas_open(const qw_allocator *allocator, qw_blas **out)
{
    *out = nullptr;
    qw_blas *blas = static_cast<qw_blas *>(qw_alloc(allocator, 1, sizeof *blas));
    if (blas == nullptr)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    blas->allocator = allocator;
    qwen36_status status = QWEN36_OK;
    const bool there = load_library(blas) && make_descriptors(blas);
    if (there)
        status = qw_runtime_allocate(QW_SPACE_DEVICE, QW_BLAS_WORKSPACE, &blas->workspace);
    if (there && status == QWEN36_OK)
        *out = blas;
    else
        qw_blas_close(blas);
    return status;
}

/* ---- multiplying -------------------------------------------------------------------------------------- */

/* The largest power of two up to 256 at whose multiples all rows begin, in bytes. */
static int64_t alignment_of(const void *base, int64_t stride_bytes)
{
    const uint64_t bits = reinterpret_cast<uintptr_t>(base) | static_cast<uint64_t>(stride_bytes) | 256;
    return static_cast<int64_t>(bits & (~bits + 1));
}

static blas_shape shape_of(const qw_blas_product *p)
{
    blas_shape s = {};
    s.rows = p->rows;
    s.depth = p->depth;
    s.columns = p->columns;
    s.x_stride = p->x_stride;
    s.w_stride = p->w_stride;
    s.y_stride = p->y_stride;
    s.x_alignment = alignment_of(p->x, p->x_stride * 2);
    s.w_alignment = alignment_of(p->w, p->w_stride * 2);
    s.y_alignment = alignment_of(p->y, p->y_stride * 4);
    s.dtype = p->dtype;
    return s;
}

/* A matrix of `columns` columns, each `rows` long, that begin `stride` elements apart. */
static bool set_layout(const qw_blas *blas, cublasLtMatrixLayout_t layout, cudaDataType type, int64_t rows,
                       int64_t columns, int64_t stride)
{
    const uint32_t format = type;
    const uint64_t height = static_cast<uint64_t>(rows), width = static_cast<uint64_t>(columns);
    const struct {
        cublasLtMatrixLayoutAttribute_t attribute;
        const void *value;
        size_t bytes;
    } parts[] = {
        {CUBLASLT_MATRIX_LAYOUT_TYPE, &format, sizeof format},
        {CUBLASLT_MATRIX_LAYOUT_ROWS, &height, sizeof height},
        {CUBLASLT_MATRIX_LAYOUT_COLS, &width, sizeof width},
        {CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof stride},
    };
    bool set = true;
    for (size_t i = 0; i < QW_COUNT_OF(parts) && set; i++)
        set = blas->call.cublasLtMatrixLayoutSetAttribute(layout, parts[i].attribute, parts[i].value,
                                                          parts[i].bytes) == CUBLAS_STATUS_SUCCESS;
    return set;
}

static bool set_layouts(const qw_blas *blas, const blas_shape *s)
{
    const cudaDataType narrow = s->dtype == QW_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    return set_layout(blas, blas->w, narrow, s->depth, s->columns, s->w_stride) &&
           set_layout(blas, blas->x, narrow, s->depth, s->rows, s->x_stride) &&
           set_layout(blas, blas->y, CUDA_R_32F, s->columns, s->rows, s->y_stride);
}

static bool set_alignments(const qw_blas *blas, const blas_shape *s)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        int64_t bytes;
    } parts[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->w_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->x_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->y_alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->y_alignment},
    };
    bool set = true;
    for (size_t i = 0; i < QW_COUNT_OF(parts) && set; i++) {
        const uint32_t bytes = static_cast<uint32_t>(parts[i].bytes);
        set = blas->call.cublasLtMatmulPreferenceSetAttribute(blas->preference, parts[i].attribute, &bytes,
                                                              sizeof bytes) == CUBLAS_STATUS_SUCCESS;
    }
    return set;
}

/* The first choice of the heuristic for the layouts that are set. A refusal is kept as well: it would be the
 * same the next time. */
static void choose(const qw_blas *blas, blas_entry *entry)
{
    cublasLtMatmulHeuristicResult_t result = {};
    int count = 0;
    entry->choice = CHOICE_REFUSED;
    if (!set_alignments(blas, &entry->shape) ||
        blas->call.cublasLtMatmulAlgoGetHeuristic(blas->handle, blas->operation, blas->w, blas->x, blas->y,
                                                  blas->y, blas->preference, 1, &result,
                                                  &count) != CUBLAS_STATUS_SUCCESS ||
        count == 0 || result.state != CUBLAS_STATUS_SUCCESS)
        return;
    entry->algorithm = result.algo;
    entry->choice = CHOICE_MADE;
}

/* A failure of the library is a refusal, unless the stream tells that the device is lost. */
static qwen36_status refusal(qw_stream stream)
{
    (void)cudaGetLastError();
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return QWEN36_ERROR_DEVICE;
    }
    return qw_runtime_status(error) == QWEN36_ERROR_DEVICE_LOST ? QWEN36_ERROR_DEVICE_LOST
                                                                : QWEN36_ERROR_DEVICE;
}

qwen36_status qw_blas_multiply(qw_blas *blas, qw_stream stream, const qw_blas_product *product)
{
    const float one = 1, zero = 0;
    const blas_shape shape = shape_of(product);
    blas_entry *entry = &blas->entry[qw_hash(&shape, sizeof shape) % BLAS_ENTRIES];
    if (memcmp(&entry->shape, &shape, sizeof shape) != 0) {
        entry->shape = shape;
        entry->choice = CHOICE_NONE;
    }
    if (entry->choice == CHOICE_REFUSED)
        return QWEN36_ERROR_DEVICE;
    if (!set_layouts(blas, &shape))
        return refusal(stream);
    if (entry->choice == CHOICE_NONE)
        choose(blas, entry);
    if (entry->choice == CHOICE_REFUSED)
        return refusal(stream);
    if (blas->call.cublasLtMatmul(blas->handle, blas->operation, &one, product->w, blas->w, product->x,
                                  blas->x, &zero, product->y, blas->y, product->y, blas->y, &entry->algorithm,
                                  blas->workspace, QW_BLAS_WORKSPACE, stream) == CUBLAS_STATUS_SUCCESS)
        return QWEN36_OK;
    entry->choice = CHOICE_REFUSED;
    const qwen36_status status = refusal(stream);
    return status == QWEN36_ERROR_DEVICE ? QWEN36_ERROR_SYSTEM : status;
}

#endif
