"""Functions that numba compiles into the kernels that call them.

Of each function numba makes optimised machine code, and then optimises it again in each of its
callers, theirs, and so on. A function called by a kernel is here only translated to LLVM's code,
which is optimised once, as a whole, in the kernel that Python or C calls.

The names from numba's inside are those of versions 0.61 to 0.68; the tests would tell of others.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher
from numba.core.types.misc import unliteral

from readers.cache.kept import KernelCache, KernelCacheImpl


class _Part(JITCodeLibrary):
    """LLVM's code of a function and of what it calls, which a caller optimises."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        """Let callers copy the code, and drop copies that they do not need; run nothing."""
        self._finalize_dynamic_globals()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"
        self._shared_module = self._final_module
        self._finalized = True


class _OptimizedPart(_Part):
    """The same, optimised before it is copied, and once more with the caller."""

    def _optimize_final_module(self) -> None:
        JITCodeLibrary._optimize_final_module(self)


class _Translation(Compiler):
    """numba's steps up to LLVM's code."""

    library: type[_Part] = _Part

    def _compile_bytecode(self) -> Any:
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        return super()._compile_bytecode()


class _OptimizedTranslation(_Translation):
    library = _OptimizedPart


class _Translator(_FunctionCompiler):
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        return flags


class _PartCache(KernelCache):
    """Keep parts as LLVM's code."""

    class _impl_class(KernelCacheImpl):
        def get_filename_base(self, fullname: str, abiflags: str) -> str:
            return super().get_filename_base(f"{fullname}.part", abiflags)

        def reduce(self, result: Any) -> Any:
            result.fndesc.typemap = result.fndesc.calltypes = None  # as numba does
            library = result.library
            code = library._get_module_for_linking().as_bitcode()
            return library.name, code, result.fndesc, result.signature

        def rebuild(self, target: Any, kept: Any) -> Any:
            name, code, description, signature = kept
            library = _Part(target.codegen(), name)
            library._final_module = llvm.parse_bitcode(code)
            library._finalize_final_module()
            fields = dict.fromkeys(CompileResult._fields)
            fields.update(
                target_context=target,
                typing_context=target.typing_context,
                library=library,
                entry_point=library,
                fndesc=description,
                signature=signature,
                objectmode=False,
                lifted=(),
            )
            return CompileResult(**fields)


class _PartDispatcher(CPUDispatcher):
    """A function as kernels call it, for any types of arguments."""

    def __init__(
        self, function: Any, options: dict[str, Any], steps: type[Compiler], stamp: str
    ) -> None:
        super().__init__(function, targetoptions=options)
        self._compiler = _Translator(function, self.targetdescr, options, {}, steps)
        self._cache = _PartCache(function, stamp)

    def add_overload(self, result: Any) -> None:
        """Add a part. What numba finds it by is its library, for want of an address."""
        if result.entry_point is None:
            result = result._replace(entry_point=result.library)
            self.targetctx.insert_user_function(result.library, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result


class KernelDispatcher(CPUDispatcher):
    """A function that Python calls, where it is a kernel, or that kernels call, as part of them."""

    def __init__(
        self, function: Any, options: dict[str, Any], stamp: str, *, optimized: bool
    ) -> None:
        super().__init__(function, targetoptions=options)
        self._cache = KernelCache(function, stamp)
        steps = _OptimizedTranslation if optimized else _Translation
        self._part = _PartDispatcher(function, options, steps, stamp)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return how a kernel calls it; numba would make a version for each constant."""
        args = [unliteral(arg) for arg in args]
        kws = {name: unliteral(arg) for name, arg in kws.items()}
        return self._part.get_call_template(args, kws)

    def get_overload(self, signature: Any) -> Any:
        """Return what numba finds the code by that a kernel calls."""
        return self._part.get_overload(signature)
