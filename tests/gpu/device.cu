/* tests/simt/simt_control.h and simt_memory.h for a real device, so that the tests of operations run on it
 * unchanged. Arrays are managed memory, which the host may look at once the device is done: simt_fault, which
 * CHECK_RAN asks after every operation, waits for that. Nothing can be planted here, and nothing is counted.
 */
#include "kernels/cuda/cuda.h"

#include "tests/simt/simt_control.h"
#include "tests/simt/simt_memory.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the device ---------------------------------------------------------------------------------------- */

static bool library;

/* A program whose device does not answer has nothing to test, and says so once. */
static qw_device_profile queried()
{
    qw_device_profile profile;
    qwen36_error error = QWEN36_ERROR_INIT;
    if (qw_runtime_profile(0, &profile, &error) != QWEN36_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return profile;
}

const char *simt_fault(void)
{
    const cudaError_t error = cudaDeviceSynchronize();
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

/* A fault of a device outlives all that this process could do; what a launch was refused for does not. */
void simt_clear_fault(void)
{
    (void)cudaGetLastError();
}

int32_t simt_warp_width(void)
{
    return queried().warp_width;
}

int32_t simt_checks(void)
{
    return 0;
}

int32_t simt_profiles(void)
{
    return queried().matrix_bf16 != 0 ? 2 : 1;
}

/* cuBLASLt would serve products that tests mean for our own rows. */
void simt_profile(int32_t device, qw_device_profile *out)
{
    *out = queried();
    const uint32_t of_library = qw_plan_bit(QW_PLAN_PRODUCTS, QW_PRODUCT_LIBRARY);
    out->disabled = device == 0 ? qw_plan_special_rows() | of_library : of_library;
    if (library)
        out->disabled &= ~of_library;
}

void simt_library(int32_t on)
{
    library = on != 0;
}

int32_t simt_has_library(const qw_backend *backend)
{
    return static_cast<const qw_cuda *>(backend->self)->blas != nullptr;
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

void *simt_array_create(size_t bytes)
{
    void *array = nullptr;
    if (cudaMallocManaged(&array, bytes > 0 ? bytes : 1) != cudaSuccess) {
        queried(); /* says why, if it is the device that is not there */
        return nullptr;
    }
    return array;
}

void simt_array_destroy(void *array)
{
    (void)cudaFree(array);
}

/* ---- what only the SIMT machine does --------------------------------------------------------------------
 */

int32_t simt_plants(void)
{
    return 0;
}

uint64_t simt_launches(void)
{
    return 0;
}

uint64_t simt_switches(void)
{
    return 0;
}

int64_t simt_memory_outstanding(void)
{
    return 0;
}

int64_t simt_memory_broken(void)
{
    return 0;
}

int64_t simt_library_products(void)
{
    return 0;
}

void simt_refuse_launch(int64_t)
{
}

void simt_spoil_matrix(int32_t)
{
}

void simt_spoil_library(int32_t)
{
}

void simt_break_library(int64_t)
{
}

void simt_refuse_library(int64_t)
{
}

void simt_lose_device(int64_t)
{
}

void simt_revive_device(void)
{
}
