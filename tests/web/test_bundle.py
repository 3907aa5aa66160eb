"""The page's modules as few files."""

import pytest

from happier.web.bundle import bundled

SOURCES = {
    "state": """let count = 0;
export const add = () => ++count;
export async function other() { return "state"; }
""",
    "names": """import { add } from "./state.js";

export class Names {}
const other = add;
export function named() {
  return other;
}
""",
    "app": """import * as state from "./state.js";
import { named, Names } from "./names.js";

state.add(named, Names);
import("./view.js");
""",
    "view": """import { add } from "./state.js";
import { part } from "./part.js";

export const view = () => part(add);
""",
    "part": "export const part = (one) => one;\n",
    "unused": "export const unused = 1;\n",
}
OTHERS = ['import { a as b } from "./names.js";', "export default 1;", "export let a;"]


def test_the_entry_has_what_it_imports_in_order():
    app = bundled(SOURCES, "app")["app"]
    assert app.index("const $state = (() => {") < app.index("const $names = (() => {")
    assert "const { add } = $state;\n" in app
    assert "return { add, other };\n" in app
    assert "return { Names, named };\n" in app
    assert "const state = $state;\nconst { named, Names } = $names;\n" in app
    assert "globalThis.modules = { $state, $names };\n" in app
    assert 'import("./static/view.js");\n' in app
    assert "export" not in app


def test_what_is_loaded_later_shares_the_state_of_the_page():
    files = bundled(SOURCES, "app")
    assert set(files) == {"app", "view", "part"}
    assert "const { add } = modules.$state;\n" in files["view"]
    assert 'import { part } from "./part.js";\n' in files["view"]
    assert files["part"] == SOURCES["part"]


@pytest.mark.parametrize("line", OTHERS)
def test_what_it_cannot_read_is_refused(line):
    with pytest.raises(ValueError, match="state"):
        bundled({**SOURCES, "state": f"{line}\n{SOURCES['state']}"}, "app")
