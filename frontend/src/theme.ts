/** Light or dark: as the system says until the viewer says otherwise; the choice is kept in this browser. */
import { computed, effect, type Signal, signal } from "@preact/signals";

import type { Theme } from "./colour";

export type ThemeChoice = "system" | Theme;

const KEY = "headrace.theme";
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(dark.matches);
dark.addEventListener("change", (event) => {
  systemIsDark.value = event.matches;
});

export const choice: Signal<ThemeChoice> = signal(kept());

export const theme = computed<Theme>(() => {
  if (choice.value !== "system") return choice.value;
  return systemIsDark.value ? "dark" : "light";
});

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

export function choose(next: ThemeChoice): void {
  choice.value = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch (error) {
    // A browser that keeps nothing (private windows, strict settings) still changes the theme, until it is reloaded.
    if (!(error instanceof DOMException)) throw error;
  }
}

function kept(): ThemeChoice {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch (error) {
    if (error instanceof DOMException) return "system";
    throw error;
  }
}
