"""Documented import path of the assertions for test suites."""

from editloupe.integrations.regression_tests import assert_no_loss as assert_no_loss
