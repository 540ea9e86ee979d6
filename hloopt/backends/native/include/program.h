// All that the units of a native program begin with.
#pragma once
#include "native.h"
#include "vector_math.h"
