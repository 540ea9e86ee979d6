// Everything a program of CUDA C needs to be compiled for the CPU.
#pragma once
#include "launch.h"
#include "matrices.h"
