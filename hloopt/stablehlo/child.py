"""MLIR to HLO and back, run by a Python that has jaxlib; hloopt is not imported.

    python child.py read | artifact | stablehlo | mlir.bc

stdin and stdout hold a line of JSON and, behind it, bytes.  The request's ``memory`` is how many
bytes this process may take, where the system can limit it.  ``read`` takes StableHLO (text, bytecode, portable
artifact) with ``sizes`` for arguments by name or number, and answers with an HloModuleProto.  ``artifact``
takes a text of StableHLO and answers with a portable artifact.  The others take an HloModuleProto and answer
with text or a portable artifact.  A line with ``error`` says what went wrong; with ``line`` and ``column``
where that is a place in the text.
"""

from __future__ import annotations

import io
import json
import re
import sys
from typing import Any

if sys.platform != "win32":
    import resource

# Private names, but for those of MLIR itself: another version of jaxlib may lack them.
_NEEDED = ("mlir_module_to_xla_computation", "hlo_to_stablehlo", "refine_polymorphic_shapes")
_PLACE = re.compile(r'"-":(\d+):(\d+)')
_ERROR = re.compile(r"(?:-:(\d+):(\d+)|<unknown>:0|loc\(.*?\)|\S+): error: (.*)")
_PLACED = re.compile(r'^loc\("[^"]*"\): ')
_BLAMES_VERSION = "Failed to parse using StableHLO"
_NAMED = re.compile(r'loc\("((?:[^"\\]|\\.)*)"(?:\(|\)$)')
_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(.*)>")
_RESOURCE = re.compile(r"dense_resource<\"?([^\">]*)\"?> : (.*)", re.DOTALL)
_BLOB = re.compile(r'"?([\w.\-$/:]+)"?: "0x([0-9A-Fa-f]*)"')
_DIALECTS = ("builtin", "func", "stablehlo", "chlo", "sdy", "mhlo", "vhlo", "arith")
_ALIGNMENT = 8  # digits in front of a blob's elements


class Refused(Exception):  # noqa: N818 - an answer, not an error of this program
    """What is wrong with the module, for a reader of it."""

    def __init__(self, error: str, place: str = "", **more: Any) -> None:
        match = _PLACE.search(place)
        at = {"line": int(match[1]), "column": int(match[2])} if match else {}
        self.reply = {"error": error, **at, **more}


class Converter:
    """jaxlib's parts, and a context of MLIR with the dialects that it has."""

    def __init__(self) -> None:
        import jaxlib
        from jaxlib import _hlo, _jax
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

        self.version = jaxlib.__version__
        missing = [name for name in _NEEDED if not hasattr(_jax.mlir, name)]
        if missing:
            raise ImportError(f"jaxlib {self.version} has no {missing[0]}")
        self.ir, self.xla, self.hlo, self.stablehlo = ir, _jax.mlir, _hlo, stablehlo
        self.passes = passmanager.PassManager
        self.context = ir.Context()
        registry = ir.DialectRegistry()
        _jax_mlir_ext.register_dialects(registry)
        self.context.append_dialect_registry(registry)
        self.context.load_all_available_dialects()
        for dialect in (stablehlo, chlo, sdy):
            dialect.register_dialect(self.context)
        mhlo.register_mhlo_dialect(self.context)
        stablehlo.register_stablehlo_passes()

    def read(self, data: bytes, sizes: dict[str, list[int]]) -> tuple[dict[str, Any], bytes]:
        """An HloModuleProto of MLIR, and what it does not hold: the devices and the arguments."""
        is_text = not data.startswith(b"ML\xefR")
        with self.context:
            module = self._parsed(data, is_text)
            main = self._main(module)
            self._name_arguments(module, main)
            arguments = [{"name": _name(one), "type": str(one.type)} for one in main.arguments]
            attributes = module.operation.attributes
            counts = {
                name: attributes[f"mhlo.num_{name}"].value
                for name in ("partitions", "replicas")
                if f"mhlo.num_{name}" in attributes
            }
            is_open = any("?" in one["type"] and "bounds" not in one["type"] for one in arguments)
            foreign = self._foreign(module)
            try:
                if sizes or is_open:
                    code = self._refined(module, main, arguments, sizes)
                else:
                    self._put_resources_in_line(module, data if is_text else b"")
                    code = _bytecode(module)
                computation = self.xla.mlir_module_to_xla_computation(
                    code, use_tuple_args=False, return_tuple=False
                )
            except Refused:
                raise
            except Exception as error:
                raise foreign or error from error
        return {"arguments": arguments, **counts}, computation.as_serialized_hlo_module_proto()

    def _foreign(self, module: Any) -> Refused | None:
        """What is wrong with the first op that is none of StableHLO's, where XLA cannot read it."""
        found: list[Refused] = []

        def visit(op: Any) -> Any:
            if op.name.partition(".")[0] in _DIALECTS:
                return self.ir.WalkResult.ADVANCE
            why = f"{op.name} is no op of StableHLO, and XLA does not take it here"
            if op.name.partition(".")[0] in ("shape", "tensor"):
                why += "; torch-mlir computes open sizes so: fix them where the program is exported"
            found.append(Refused(why, str(op.location)))
            return self.ir.WalkResult.INTERRUPT

        module.operation.walk(visit)
        return found[0] if found else None

    def _parsed(self, data: bytes, is_text: bool) -> Any:
        if not is_text:
            version = data[4:64].lstrip(b"\r\n\t\x0b\x0c ")
            if version.startswith(b"StableHLO"):
                return self.stablehlo.deserialize_portable_artifact(self.context, data)
        return self.ir.Module.parse(data)

    def _main(self, module: Any) -> Any:
        """The function that XLA begins with, which has to be called main."""
        functions = [op for op in module.body.operations if op.operation.name == "func.func"]
        named = [op for op in functions if op.name.value == "main"]
        if named:
            return named[0]
        public = [
            op for op in functions if "private" not in str(op.attributes.get("sym_visibility"))
        ]
        if len(public) == 1:
            public[0].attributes["sym_name"] = self.ir.StringAttr.get("main")
            return public[0]
        names = ", ".join(f"@{op.name.value}" for op in public[:5]) or "none"
        raise Refused(f"there is no function @main, where a program begins; functions: {names}")

    def _name_arguments(self, module: Any, main: Any) -> None:
        """Where arguments without names are handed on to a function that names them, take those."""
        for call in main.regions[0].blocks[0].operations:
            if call.operation.name == "func.call":
                name = call.operation.attributes["callee"].value
                callee = next(op for op in module.body.operations if _is_function(op, name))
                for given, taken in zip(call.operation.operands, callee.arguments, strict=True):
                    if isinstance(given, self.ir.BlockArgument) and not _name(given):
                        given.set_location(taken.location)

    def _refined(
        self,
        module: Any,
        main: Any,
        arguments: list[dict[str, Any]],
        sizes: dict[str, list[int]],
    ) -> bytes:
        """The module with sizes for its arguments, and for all that follows from them."""
        types = _sized(arguments, sizes)
        given = f"stablehlo-refine-arguments{{types={','.join(types)}}}"
        self.passes.parse(f"builtin.module({given})").run(module.operation)
        code: bytes = self.xla.refine_polymorphic_shapes(
            _bytecode(module),
            enable_shape_assertions=True,
            validate_static_shapes=True,
            enable_shardy=True,
        )
        refined = self.ir.Module.parse(code)
        self._put_resources_in_line(refined, b"")
        return _bytecode(refined)

    def _put_resources_in_line(self, module: Any, text: bytes) -> None:
        """Constants kept behind the module become ordinary ones: XLA reads no others."""
        found: list[tuple[Any, str]] = []

        def visit(op: Any) -> Any:
            if op.name == "stablehlo.constant":
                try:
                    value = op.attributes["value"]
                except TypeError:  # in line, of an element type that Python has no class for
                    return self.ir.WalkResult.ADVANCE
                # There is a class for values that are in line; their text may be long.
                if not isinstance(value, self.ir.DenseElementsAttr):
                    found.append((op, str(value)))
            return self.ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        if not found:
            return
        whole = text.decode() if text else module.operation.get_asm()
        blobs = dict(_BLOB.findall(whole[whole.rfind("{-#") :]))
        for op, value in found:
            match = _RESOURCE.fullmatch(value)
            if match is None:
                continue
            digits = blobs.get(match[1])
            if digits is None:
                raise Refused(
                    f"the values of dense_resource<{match[1]}> are not in the file",
                    str(op.location),
                )
            dense = f'dense<"0x{digits[_ALIGNMENT:]}"> : {match[2]}'
            if not digits[_ALIGNMENT:]:
                dense = f"dense<> : {match[2]}"
            op.attributes["value"] = self.ir.Attribute.parse(dense)

    def artifact(self, data: bytes) -> bytes:
        """A portable artifact of StableHLO."""
        with self.context:
            module = self._parsed(data, is_text=True)
            self._put_resources_in_line(module, data)
            return self._serialized(module)

    def _serialized(self, module: Any) -> bytes:
        current = self.stablehlo.get_current_version()
        artifact: bytes = self.stablehlo.serialize_portable_artifact(module, current, True)
        return artifact

    def write(self, data: bytes, form: str, request: dict[str, Any]) -> bytes:
        """StableHLO of an HloModuleProto, with ``counts`` of devices and ``names`` of arguments."""
        code = self.xla.hlo_to_stablehlo(data)
        with self.context:
            module = self.ir.Module.parse(code)
            number = self.ir.IntegerType.get_signless(32)
            for name, count in request["counts"].items():
                attribute = self.ir.IntegerAttr.get(number, count)
                module.operation.attributes[f"mhlo.num_{name}"] = attribute
            main = self._main(module)
            for argument, name in zip(main.arguments, request["names"], strict=True):
                place = self.ir.Location
                argument.set_location(place.name(name) if name else place.unknown())
            main.attributes["sym_visibility"] = self.ir.StringAttr.get("public")
            if form == "stablehlo":
                text: str = module.operation.get_asm(enable_debug_info=True)
                return text.encode()
            return self._serialized(module)


def _is_function(op: Any, name: str) -> bool:
    return bool(op.operation.name == "func.func" and op.name.value == name)


def _bytecode(module: Any) -> bytes:
    stream = io.BytesIO()
    module.operation.write_bytecode(stream)
    return stream.getvalue()


def _name(argument: Any) -> str:
    """The name that an argument's location has; empty for a place in a file, or none."""
    match = _NAMED.match(str(argument.location))
    return "" if match is None else re.sub(r"\\(.)", r"\1", match[1])


def _sized(arguments: list[dict[str, Any]], sizes: dict[str, list[int]]) -> list[str]:
    """The types of all arguments, with every size fixed.  Raises ``Refused`` where a size stays open."""
    types, rest = [], dict(sizes)
    for number, one in enumerate(arguments):
        match = _TENSOR.fullmatch(one["type"])
        name = one["name"] if one["name"] in rest else str(number)
        dims = rest.pop(name, None)
        if dims is None or match is None:
            types.append(one["type"])
            continue
        own = match[1].split("x")[:-1]
        if len(own) != len(dims) or any(
            a not in {"?", str(b)} for a, b in zip(own, dims, strict=True)
        ):
            given = ",".join(map(str, dims))
            raise Refused(
                f"argument {name} is {one['type']}: it cannot have the sizes [{given}]",
                kind="usage",
            )
        types.append(f"tensor<{''.join(f'{size}x' for size in dims)}{match[2]}>")
    if rest:
        known = ", ".join(one["name"] or str(number) for number, one in enumerate(arguments))
        how = "" if all(one["name"] for one in arguments) else " (those without a name by number)"
        raise Refused(
            f"there is no argument {next(iter(rest))}; there are: {known}{how}", kind="usage"
        )
    if any("?" in one for one in types):
        raise Refused("sizes are open", kind="open", arguments=arguments, types=types)
    return types


def _reason(error: Exception) -> dict[str, Any]:
    """The first mistake that MLIR or XLA names, with its place."""
    for one in getattr(error, "error_diagnostics", ()):
        return Refused(_readable(one.message), str(one.location)).reply
    lines = str(error).split("\n")
    for line in lines:
        match = _ERROR.search(line)
        if match and not match[3].startswith(_BLAMES_VERSION):
            place = f'"-":{match[1]}:{match[2]}' if match[1] else ""
            return Refused(_readable(match[3]), place).reply
    return {"error": lines[0] or type(error).__name__}


def _readable(message: str) -> str:
    """Without names of places in the compiler, and without advice for its developers."""
    said = _PLACED.sub("", message.strip())
    if "unregistered dialect" in said:
        what = said.partition(" type created")[0] if " type created" in said else "this op"
        return f"{what} is of a dialect that XLA does not read"
    return said


def _limit_memory(size: int) -> None:
    if sys.platform == "win32":
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    least = size if hard == resource.RLIM_INFINITY else min(size, hard)
    resource.setrlimit(resource.RLIMIT_AS, (least, hard))


def main(form: str) -> None:
    """One request."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit_memory(request["memory"])
    data = sys.stdin.buffer.read()
    made = b""
    try:
        converter = Converter()
    except (ImportError, AttributeError) as error:
        reply = {"error": str(error), "kind": "jaxlib"}
    else:
        reply = {"version": converter.version}
        try:
            if form == "read":
                found, made = converter.read(data, request["sizes"])
                reply |= found
            elif form == "artifact":
                made = converter.artifact(data)
            else:
                made = converter.write(data, form, request)
        except Refused as refused:
            reply |= refused.reply
        except MemoryError:
            raise  # the parent says how much there was
        except Exception as error:  # noqa: BLE001 - whatever MLIR raises is the answer
            reply |= _reason(error)
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n" + made)


if __name__ == "__main__":
    main(sys.argv[1])
