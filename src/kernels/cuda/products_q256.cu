#include "kernels/cuda/launch.cuh"
//
#include "kernels/cuda/products_q256.cuh"
