/* One line about the device that tests run on, and one about the software; or why there is none. */
#include "kernels/cuda/runtime.h"

#include <stdio.h>

int main()
{
    qw_device_profile profile;
    qwen36_error error = QWEN36_ERROR_INIT;
    uint64_t free_bytes = 0;
    cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    if (qw_runtime_profile(0, &profile, &error) != QWEN36_OK ||
        qw_runtime_free_memory(0, &free_bytes, &error) != QWEN36_OK) {
        printf("%s\n", error.message);
        return 1;
    }
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
        printf("the device does not describe itself\n");
        return 1;
    }
    printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, %.1f free, %lld bytes of shared "
           "memory\n",
           properties.name, profile.capability / 10, profile.capability % 10, profile.multiprocessors,
           static_cast<double>(properties.totalGlobalMem) / (1 << 30),
           static_cast<double>(free_bytes) / (1 << 30), static_cast<long long>(profile.shared_bytes));
    printf("driver for CUDA %d.%d, built with CUDA %d.%d\n", driver / 1000, driver % 1000 / 10,
           runtime / 1000, runtime % 1000 / 10);
    return 0;
}
