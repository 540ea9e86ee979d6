/* Cube roots by the program samples/while_loop.hlo, compiled into a library:

     hloopt build samples/while_loop.hlo -o build/libroots.so --header build/roots.h
     cc -Ibuild samples/library/roots.c -Lbuild -lroots -o build/roots
     LD_LIBRARY_PATH=build build/roots
*/
#include <stdio.h>

#include "roots.h"

int main(void) {
  float numbers[ROOTS_ELEMENTS_INPUT_A_0], roots[ROOTS_ELEMENTS_RESULT_RESULT_0];
  int32_t steps, left[ROOTS_ELEMENTS_RESULT_RESULT_2];
  roots_inputs inputs = {numbers};
  roots_results results = {roots, &steps, left};
  roots_context *context;
  roots_status status = roots_create(&context, 1, NULL);

  if (status != ROOTS_OK) {
    fprintf(stderr, "%s\n", roots_status_text(status));
    return 1;
  }
  for (int i = 0; i < ROOTS_ELEMENTS_INPUT_A_0; ++i) numbers[i] = 1 + i;
  status = roots_run(context, &inputs, &results);
  if (status == ROOTS_OK) {
    for (int i = 0; i < 8; ++i) printf("%g %.9g\n", numbers[i], roots[i]);
    printf("%d steps\n", (int)steps);
  } else {
    fprintf(stderr, "%s: %s\n", roots_status_text(status), roots_message(context));
  }
  roots_destroy(context);
  return status != ROOTS_OK;
}
