-- The sliding window counter: this window's units, and the previous one's by the share of it that the
-- trailing window still covers. src/ratelimit/algorithm/sliding_window_counter.rs is the specification;
-- README.md says why doubles decide exactly as it does.

rules.sliding_window_counter = function(current, previous, quota, length, elapsed, cost)
  local estimate = current * length + previous * (length - elapsed)
  return estimate + (cost - 1) * length < quota * length
end
