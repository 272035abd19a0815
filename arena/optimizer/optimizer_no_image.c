/* optimizer_no_image.c - the optimizer's image of CUDA kernels in a build without nvcc: none. */
extern const unsigned long long ashlar__optimizer_image[];

const unsigned long long ashlar__optimizer_image[] = {0};
