/* optimizer_no_image.c - stands for the image of CUDA kernels in a build without nvcc: empty. */
extern const unsigned long long ashlar__optimizer_image[];

const unsigned long long ashlar__optimizer_image[] = {0};
