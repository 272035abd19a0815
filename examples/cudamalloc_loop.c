/* cudamalloc_loop.c - an ordinary CUDA program: each step takes its buffers from the driver, and
 * each cudaFree() waits for the device. It names nothing of ashlar, but can run on it in two ways.
 *
 * Unchanged, with libashlar-preload.so:
 *
 *     cc cudamalloc_loop.c -o cudamalloc_loop -I$CUDA_PATH/include -L$CUDA_PATH/lib64 -lcudart
 *     LD_PRELOAD=libashlar-preload.so ASHLAR_PRELOAD=report ./cudamalloc_loop
 *
 * Or compiled with two headers included before its first line:
 *
 *     cc -include cuda_runtime.h -include ashlar/cuda_dropin.h cudamalloc_loop.c \
 *         -o cudamalloc_loop -I$CUDA_PATH/include -L$CUDA_PATH/lib64 -lcudart \
 *         $(pkg-config --cflags --libs ashlar) && ./cudamalloc_loop
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cuda_runtime.h>

enum { STEPS = 500, LAYERS = 8, WIDTH = 4096 };

static void must(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

static double now_ms(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Fill buffers for a sequence, and free them on the way back. Returns the last byte of the last. */
static int step(size_t length) {
    unsigned char *buffers[LAYERS], last;
    const size_t bytes = length * WIDTH;
    for (int layer = 0; layer < LAYERS; layer++) {
        must(cudaMalloc((void **)&buffers[layer], bytes));
        must(cudaMemsetAsync(buffers[layer], layer + (int)length, bytes, NULL));
    }
    must(cudaMemcpy(&last, buffers[LAYERS - 1] + bytes - 1, 1, cudaMemcpyDeviceToHost));
    for (int layer = LAYERS; layer-- > 0;) {
        must(cudaFree(buffers[layer]));
    }
    return last;
}

int main(void) {
    int right = 0;
    const double begin = now_ms();
    for (int i = 0; i < STEPS; i++) {
        const size_t length = 128 - (size_t)(i * 37 % 97);
        right += step(length) == LAYERS - 1 + (int)length;
    }
    printf("%d of %d steps are right; %.3f ms a step\n", right, STEPS, (now_ms() - begin) / STEPS);
    return right != STEPS;
}
