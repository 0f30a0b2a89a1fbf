import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const noMarkup = [
  // Texts come from the stream. They reach the page as text nodes only.
  ...["innerHTML", "outerHTML", "srcdoc"].map((property) => ({
    selector: `AssignmentExpression[left.property.name='${property}']`,
    message: "Texts reach the page as text nodes only.",
  })),
  ...["insertAdjacentHTML", "setHTML", "setHTMLUnsafe", "createContextualFragment", "parseFromString"].map((name) => ({
    selector: `CallExpression[callee.property.name='${name}']`,
    message: "Texts reach the page as text nodes only.",
  })),
  {
    selector: "CallExpression[callee.object.name='document'][callee.property.name=/^write/]",
    message: "Texts reach the page as text nodes only.",
  },
  {
    selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
    message: "Texts reach the page as text nodes only.",
  },
];

export default defineConfig(
  { ignores: ["node_modules", "src/generated"] },
  {
    files: ["src/**/*.{ts,tsx}", "test/**/*.{ts,tsx}", "vite.config.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-restricted-syntax": ["error", ...noMarkup],
      "no-eval": "error",
      "no-console": "error",
      eqeqeq: "error",
      "max-lines": ["error", 500],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/switch-exhaustiveness-check": "error",
    },
  },
);
