/* optimizer_no_image.c - the optimizer's image of CUDA kernels in a build without nvcc: none. */
extern const unsigned long long ashlar_optimizer_image[];

const unsigned long long ashlar_optimizer_image[] = {0};
