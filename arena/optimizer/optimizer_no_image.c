/* optimizer_no_image.c - an empty image, in place of the CUDA kernels in a build without nvcc. */
extern const unsigned long long ashlar__optimizer_image[];

const unsigned long long ashlar__optimizer_image[] = {0};
