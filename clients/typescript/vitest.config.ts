import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/daemon.ts'],
    // One daemon serves all tests, on a machine that may be busy.
    testTimeout: 120_000,
    hookTimeout: 300_000,
  },
})
