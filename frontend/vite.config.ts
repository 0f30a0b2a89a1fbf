/// <reference types="vitest/config" />
import { defineConfig } from "vite";

export default defineConfig({
  // Relative addresses: the page also works behind a reverse proxy that puts it under a path.
  base: "./",
  build: {
    outDir: "../src/headrace/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    // A strict Content-Security-Policy forbids data: scripts, so nothing but what is named in index.html is inlined.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 4000,
    modulePreload: { polyfill: false },
  },
  server: {
    // `npm run dev` beside a running dashboard or dev/mock.py.
    proxy: Object.fromEntries(
      ["/api", "/healthz", "/metrics", "/socket.io"].map((path) => [
        path,
        { target: process.env["HEADRACE_DASHBOARD"] ?? "http://127.0.0.1:8080", ws: path === "/socket.io" },
      ]),
    ),
  },
  test: {
    // Tests that need a page say so at their top: // @vitest-environment happy-dom
    environment: "node",
    include: ["test/**/*.test.{ts,tsx}"],
  },
});
