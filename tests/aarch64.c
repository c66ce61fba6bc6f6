/* Call the decoder of images, compiled for aarch64, with samples from a file; see aarch64.py.

What numba's runtime does is done here as far as the decoder uses it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t references;
    void *dtor, *dtor_info, *data;
    size_t size;
    void *allocator;
} MemInfo;

void *NRT_MemInfo_alloc_aligned(size_t size, uint32_t align) {
    MemInfo *info = calloc(1, sizeof *info);
    info->references = 1;
    info->size = size;
    info->data = aligned_alloc(align, (size + align - 1) / align * align);
    memset(info->data, 0xa5, size);
    return info;
}

void NRT_MemInfo_call_dtor(MemInfo *info) {
    free(info->data);
    free(info);
}

/* Of contiguous arrays, which is all there are. */
int numba_attempt_nocopy_reshape(int64_t nd, const int64_t *dims, const int64_t *strides,
                                 int64_t new_nd, const int64_t *new_dims, int64_t *new_strides,
                                 int64_t item, int is_f_order) {
    int64_t stride = item;
    for (int64_t axis = nd - 1; axis >= 0; stride *= dims[axis--])
        if (strides[axis] != stride && dims[axis] != 1) return 0;
    stride = item;
    for (int64_t axis = new_nd - 1; axis >= 0; stride *= new_dims[axis--]) new_strides[axis] = stride;
    return !is_f_order;
}

#define UNUSED(name) void name(void) { fprintf(stderr, #name " was called\n"); abort(); }
UNUSED(NRT_Free) UNUSED(PyBytes_FromStringAndSize) UNUSED(PyErr_Clear) UNUSED(PyErr_SetNone)
UNUSED(PyErr_SetString) UNUSED(PyErr_WriteUnraisable) UNUSED(PyUnicode_FromString)
UNUSED(Py_DecRef) UNUSED(numba_do_raise) UNUSED(numba_gil_ensure) UNUSED(numba_gil_release)
UNUSED(numba_runtime_build_excinfo_struct) UNUSED(numba_unpickle)
void *PyExc_RuntimeError, *PyExc_StopIteration, *PyExc_SystemError;

void run(void **outs, int64_t **out_shapes, int32_t *out_ndims, int32_t num_outs, void **ins,
         int64_t **in_shapes, int32_t *in_ndims, int32_t num_ins);

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    int64_t shape[2], sizes[5]; /* of payload, plan, scaling, flip, finish, in bytes */
    while (fread(shape, 8, 2, in) == 2 && fread(sizes, 8, 5, in) == 5) {
        void *ins[6] = {0};
        int64_t counts[6], *in_shapes[6] = {shape};
        for (int i = 0; i < 5; i++) {
            static const int items[5] = {1, 8, 8, 4, 4};
            ins[i + 1] = malloc(sizes[i] + 8);
            if (fread(ins[i + 1], 1, sizes[i], in) != (size_t)sizes[i]) return 2;
            counts[i + 1] = sizes[i] / items[i];
            in_shapes[i + 1] = counts + i + 1;
        }
        size_t size = 4 * shape[0] * shape[1];
        int32_t status = -1;
        void *outs[2] = {malloc(size), &status};
        run(outs, 0, 0, 2, ins, in_shapes, 0, 6);
        fwrite(&status, 4, 1, out);
        fwrite(outs[0], 1, size, out);
        for (int i = 0; i < 5; i++) free(ins[i + 1]);
        free(outs[0]);
    }
    return fclose(out);
}
